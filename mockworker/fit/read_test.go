package fit

import (
	"strings"
	"testing"
	"testing/fstest"
)

const goodMeta = `{"model": "m", "vllm_version": "1", "engine_kwargs": {"max_num_seqs": 4, "max_num_batched_tokens": 64, "max_model_len": null},
"kv_cache": {"num_gpu_blocks": 100, "block_size": 16, "enable_prefix_caching": true}}`

const goodLine = `{"request_id": "a", "input_toks": 30, "output_toks": 3, "queued_ts": 100.5, "scheduled_ts": 100.5, "first_token_ts": 100.6, "last_token_ts": 100.8}` + "\n"

func folder(meta, requests string) fstest.MapFS {
	return fstest.MapFS{"meta.json": {Data: []byte(meta)}, "requests.jsonl": {Data: []byte(requests)}}
}

func TestRead(t *testing.T) {
	r, err := Read(folder(goodMeta, goodLine+"\n"+strings.Replace(goodLine, "100.5, \"sched", "100.55, \"sched", 1)))
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Requests) != 2 || r.NumBlocks != 100 || r.MaxNumSeqs != 4 || !r.ReserveFull || r.MaxModelLen != 0 {
		t.Errorf("%+v", r)
	}
	if q := r.Requests[1]; q.Queued != 50_000_000 || q.First != 100_000_000 || q.Last != 300_000_000 {
		t.Errorf("%+v", q)
	}
}

func TestReadSaysWhatIsWrong(t *testing.T) {
	change := func(from, to string) string { return goodLine + strings.Replace(goodLine, from, to, 1) }
	for _, c := range []struct{ name, meta, requests, want string }{
		{"no meta", "", goodLine, "opening what a run's engine was"},
		{"torn meta", goodMeta[:40], goodLine, "reading meta.json: unexpected end"},
		{"negative blocks", strings.Replace(goodMeta, "100", "-1", 1), goodLine, "kv_cache.num_gpu_blocks is -1"},
		{"no requests", goodMeta, "", "requests.jsonl: no request"},
		{"torn line", goodMeta, goodLine + goodLine[:60], "requests.jsonl: line 2: unexpected end"},
		{"negative stamp", goodMeta, change(`"queued_ts": 100.5`, `"queued_ts": -1`), "line 2: queued_ts is -1"},
		{"missing stamp", goodMeta, change(`"first_token_ts": 100.6, `, ``), "line 2: first_token_ts is missing"},
		{"null stamp", goodMeta, change(`100.8`, `null`), "line 2: last_token_ts is missing"},
		{"no tokens", goodMeta, change(`"output_toks": 3`, `"output_toks": 0`), "line 2: output_toks is 0"},
		{"too many", goodMeta, change(`"input_toks": 30`, `"input_toks": 99999999`), "line 2: input_toks is 99999999"},
		{"first before queued", goodMeta, change(`100.6`, `100.4`), "line 2: times run backwards"},
		{"out of order", goodMeta, strings.ReplaceAll(goodLine, "100.5", "100.55") + goodLine, "line 2: queued 100.5"},
		{"years", goodMeta, change(`100.8`, `1e12`), "line 2: queued"},
		{"not a number", goodMeta, change(`100.8`, `"soon"`), "line 2: json: cannot unmarshal"},
	} {
		dir := folder(c.meta, c.requests)
		if c.meta == "" {
			delete(dir, "meta.json")
		}
		if _, err := Read(dir); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	dir := folder(goodMeta, "")
	delete(dir, "requests.jsonl")
	if _, err := Read(dir); err == nil || !strings.Contains(err.Error(), "opening the requests of a run") {
		t.Errorf("no requests.jsonl: %v", err)
	}
}

// Whatever a line holds, reading ends with requests in order or with an error.
func FuzzReadRequests(f *testing.F) {
	f.Add(goodLine)
	f.Add(goodLine[:50])
	f.Add(`{"queued_ts": 1e308}`)
	f.Fuzz(func(t *testing.T, lines string) {
		r, err := Read(folder(goodMeta, lines))
		if err != nil {
			return
		}
		for i, q := range r.Requests {
			if q.Queued < 0 || q.First <= q.Queued-1 || q.Last < q.First || q.Input < 1 || i > 0 && q.Queued < r.Requests[i-1].Queued {
				t.Fatalf("request %d: %+v", i, q)
			}
		}
	})
}
