package api

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"fleetdrill/internal/clock"
	"fleetdrill/internal/contract"
	"fleetdrill/mockworker/blockhash"
	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/faults"
	"fleetdrill/mockworker/loop"
	"fleetdrill/mockworker/metrics"
	"fleetdrill/mockworker/radix"
)

// sglangServer is an SGLang worker's API port over two ranks whose steps take no time.
func sglangServer(t testing.TB, fast bool, change func(*Options)) (*httptest.Server, Options) {
	t.Helper()
	const ranks = 2
	o := Options{
		Model: "mock-8b", Version: "0.5.21", BlockSize: 4, NumBlocks: 33, MaxModelLen: 256, ChatMaxTokens: 3, MaxBodyBytes: 8 << 10,
		Adapters: []Adapter{{"sql", "/adapters/sql"}}, Faults: faults.New(),
		SGLang: &SGLang{
			ServerArgs: map[string]any{"model_path": "mock-8b", "page_size": 4},
			Events:     &SGLangEvents{Publisher: "zmq", EndpointHost: "*", EndpointPortBase: 5557, BlockSize: 4, DPSize: ranks},
		},
	}
	set := metrics.NewSGLang(metrics.Options{Model: o.Model, BlockSize: o.BlockSize, NumBlocks: o.NumBlocks, MaxModelLen: o.MaxModelLen, Caching: true}, ranks)
	for rank := range ranks {
		e, err := radix.New(radix.Config{Config: engine.Config{
			Rank: rank, BlockSize: o.BlockSize, NumBlocks: o.NumBlocks, MaxNumSeqs: 8, MaxNumBatchedTokens: 512,
			MaxModelLen: o.MaxModelLen, EnablePrefixCaching: true, Hasher: blockhash.NewSGLang(), Seed: 1,
		}})
		if err != nil {
			t.Fatal(err)
		}
		l, err := loop.Start(loop.Options{Engine: e, Observer: set.For(rank), Faults: o.Faults, Rank: rank})
		if err != nil {
			t.Fatal(err)
		}
		set.Watch(rank, l.Snapshot)
		o.Ranks = append(o.Ranks, l)
	}
	o.Metrics = set.Handler()
	if change != nil {
		change(&o)
	}
	srv := httptest.NewUnstartedServer(New(o))
	if fast {
		srv.Config.ConnContext = ConnContext
	}
	srv.Start()
	t.Cleanup(func() {
		srv.CloseClientConnections()
		for _, l := range o.Ranks {
			l.Close()
		}
		srv.Close()
	})
	return srv, o
}

// passing is what of an answer differs from run to run.
var passing = regexp.MustCompile(`"(e2e_latency|timestamp|last_gen_throughput|gen_throughput|avg_throughput)":("[^"]*"|[0-9.e+]+)`)

// TestSGLangConversations plays testdata_sglang, in the commands of TestConversations; `server report` starts
// one that reports cached tokens.
func TestSGLangConversations(t *testing.T) {
	datadriven.Walk(t, "testdata_sglang", func(t *testing.T, path string) {
		for _, fast := range []bool{true, false} {
			srv, _ := sglangServer(t, fast, nil)
			datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
				if d.Cmd == "server" {
					srv, _ = sglangServer(t, fast, func(o *Options) { o.SGLang.CacheReport = d.HasArg("report") })
					return ""
				}
				return passing.ReplaceAllString(converse(t, srv, d), `"$1":X`)
			})
		}
	})
}

// A probe of an engine that does not step fails in time; one that steps passes.
func TestHealthGenerate(t *testing.T) {
	srv, o := sglangServer(t, true, func(o *Options) { o.SGLang.ProbeTimeout = 50 * time.Millisecond })
	probe := func() int {
		req, _ := http.NewRequest("GET", srv.URL+"/health_generate", nil)
		status, _, _ := roundTrip(t, srv.Client(), req)
		return status
	}
	for range 2 {
		if got := probe(); got != http.StatusOK {
			t.Errorf("a healthy engine's probe answers %d", got)
		}
	}
	for _, l := range o.Ranks {
		if err := l.Pause(context.Background(), loop.PauseKeep); err != nil {
			t.Fatal(err)
		}
	}
	if got := probe(); got != http.StatusServiceUnavailable {
		t.Errorf("a frozen engine's probe answers %d", got)
	}
	req, _ := http.NewRequest("GET", srv.URL+"/health", nil)
	if status, _, _ := roundTrip(t, srv.Client(), req); status != http.StatusOK {
		t.Errorf("/health of a frozen engine answers %d", status)
	}
	for _, l := range o.Ranks {
		l.Resume()
	}
}

// A flush is refused while a request is there, and clears the cache otherwise.
func TestFlushCache(t *testing.T) {
	srv, o := sglangServer(t, true, nil)
	flush := func() (int, string) {
		status, _, text := roundTrip(t, srv.Client(), post(t, srv, "/flush_cache", ""))
		return status, text
	}
	cached := func() int {
		_, _, text := roundTrip(t, srv.Client(), post(t, srv, "/generate",
			`{"input_ids":[300,301,302,303,304,305,306,307,308],"sampling_params":{"max_new_tokens":1},"data_parallel_rank":0}`))
		var got struct {
			Meta struct {
				Cached int `json:"cached_tokens"`
			} `json:"meta_info"`
		}
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return got.Meta.Cached
	}
	if a, b := cached(), cached(); a != 0 || b != 8 {
		t.Fatalf("%d and %d tokens cached, want 0 and 8", a, b)
	}
	id, err := o.Faults.Arm(clock.MonoNs(), faults.Spec{Kind: contract.FaultPause, Rank: 1})
	if err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		roundTrip(t, srv.Client(), post(t, srv, "/generate", `{"text":"waits","sampling_params":{"max_new_tokens":1},"data_parallel_rank":1}`))
	}()
	for o.Ranks[1].Snapshot().Waiting == 0 {
		time.Sleep(time.Millisecond)
	}
	if status, text := flush(); status != http.StatusBadRequest {
		t.Errorf("a flush with a request waiting answers %d %s", status, text)
	}
	o.Faults.Heal(clock.MonoNs(), id)
	o.Ranks[1].Wake()
	<-gone
	if status, text := flush(); status != http.StatusOK || !strings.HasPrefix(text, "Cache flushed.") {
		t.Errorf("an idle engine answers %d %s to a flush", status, text)
	}
	if got := cached(); got != 0 {
		t.Errorf("%d tokens are cached after a flush", got)
	}
}

// Metrics have SGLang's names and labels, and count exactly what was served.
func TestSGLangMetrics(t *testing.T) {
	srv, _ := sglangServer(t, true, nil)
	for range 3 {
		roundTrip(t, srv.Client(), post(t, srv, "/generate",
			`{"input_ids":[300,301,302,303,304,305,306,307,308],"sampling_params":{"max_new_tokens":5},"data_parallel_rank":1}`))
	}
	req, _ := http.NewRequest("GET", srv.URL+"/metrics", nil)
	_, _, text := roundTrip(t, srv.Client(), req)
	const front, rank = `{engine_type="unified",model_name="mock-8b"} `, `{dp_rank="1",engine_type="unified",model_name="mock-8b",pp_rank="0",tp_rank="0"} `
	for _, want := range []string{
		"sglang:num_requests_total" + front + "3",
		"sglang:prompt_tokens_total" + front + "27",
		"sglang:generation_tokens_total" + front + "15",
		`sglang:cached_tokens_total{cache_source="device",engine_type="unified",model_name="mock-8b"} 16`,
		"sglang:num_aborted_requests_total" + front + "0",
		"sglang:time_to_first_token_seconds_count" + front + "3",
		"sglang:inter_token_latency_seconds_count" + front + "12",
		"sglang:e2e_request_latency_seconds_count" + front + "3",
		"sglang:num_retractions_sum" + front + "0",
		"sglang:num_running_reqs" + rank + "0",
		"sglang:num_queue_reqs" + rank + "0",
		"sglang:num_used_tokens" + rank + "0",
		"sglang:token_usage" + rank + "0",
		"sglang:max_total_num_tokens" + rank + "128",
		`sglang:cache_config_info{dp_rank="1",engine_type="unified",model_name="mock-8b",num_pages="32",page_size="4",pp_rank="0",tp_rank="0"} 1`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

// FuzzSGLangGenerate throws bodies at the generation routes: any answer is right but a crash, a hang or a
// 5xx, and every answer is JSON.
func FuzzSGLangGenerate(f *testing.F) {
	for _, seed := range []string{
		`{"text":"x"}`, `{"input_ids":[1,2,3],"stream":true}`, `{"input_ids":[[1],[2]]}`, `{"text":["a","b"]}`, `{"input_ids":["a"]}`,
		`{"text":[1]}`, `{"text":{}}`, `{"input_ids":[]}`, `{"input_ids":[[]]}`, `{"input_ids":[99999999999999999999]}`, `{"input_ids":[-1]}`,
		`{"text":"x","sampling_params":[]}`, `{"text":"x","sampling_params":{"max_new_tokens":-1}}`, `{"text":"x","sampling_params":{"n":2}}`,
		`{"text":"x","rid":["a"]}`, `{"text":"x","rid":"a\"b\u0000"}`, `{"text":"x","lora_path":"y"}`, `{"text":"x","routed_dp_rank":9}`,
		`{"text":"x","sampling_params":{"max_new_tokens":9223372036854775807}}`, `{"prompt":"x","messages":[{"role":"user","content":"x"}]}`,
		`{"text":"x","return_logprob":true,"logprob_start_len":0,"top_logprobs_num":3,"token_ids_logprob":[1,300],"return_text_in_logprobs":true}`,
		`{"input_ids":[[1],[2]],"return_logprob":[true,false],"token_ids_logprob":[[1],null]}`, `{"text":"x","return_logprob":true,"token_ids_logprob":[[]]}`,
		`[`, `{"text":"\ud800"}`, `{"text": [ "a" ]}`, `{"input_ids": [ [ 1 ] ] , "stream":true}`, `{"text":"                                                                    x"}`,
	} {
		f.Add(seed)
	}
	srv, _ := sglangServer(f, true, nil)
	f.Fuzz(func(t *testing.T, body string) {
		for _, path := range []string{"/generate", "/v1/completions", "/v1/chat/completions"} {
			status, header, text := roundTrip(t, srv.Client(), post(t, srv, path, body))
			if status >= 500 {
				t.Errorf("%s answered %d %s to %q", path, status, text, body)
			}
			if strings.HasPrefix(header.Get("Content-Type"), "application/json") && !json.Valid([]byte(text)) {
				t.Errorf("%s answered what is no JSON to %q: %s", path, body, text)
			}
		}
	})
}
