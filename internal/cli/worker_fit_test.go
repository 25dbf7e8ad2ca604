package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fleetdrill/internal/rng"
	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/fit"
)

// recordRun writes a run of the mock engine itself in place of a real one's.
func recordRun(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	draw := rng.Stream(1, "run")
	r := &fit.Run{NumBlocks: 500, BlockSize: 16, MaxNumSeqs: 8, MaxNumBatchedTokens: 512, ReserveFull: true}
	at := int64(0)
	for i := range 24 {
		r.Requests = append(r.Requests, fit.Request{ID: fmt.Sprint("r", i), Input: 50 + draw.IntN(400), Output: 5 + draw.IntN(20), Queued: at})
		at += int64(draw.IntN(200e6))
	}
	s, _ := fit.SizesOf(r, fit.Sizes{})
	sim, err := fit.NewSimulator(r, s)
	if err != nil {
		t.Fatal(err)
	}
	times, err := sim.Run(engine.Timing{A: 10e6, B: 50e3, C: 200e3, D: 100, E: 5, Overhead: 10e6})
	if err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	for i, q := range r.Requests {
		s := func(ns int64) float64 { return 1000 + float64(ns)/1e9 }
		fmt.Fprintf(&lines, `{"request_id": %q, "input_toks": %d, "output_toks": %d, "queued_ts": %f, "first_token_ts": %f, "last_token_ts": %f}`+"\n",
			q.ID, q.Input, q.Output, s(q.Queued), s(q.Queued+times[i].TTFT), s(q.Queued+times[i].Latency))
	}
	write(t, dir, "requests.jsonl", lines.String())
	write(t, dir, "meta.json", `{"model": "m", "vllm_version": "1", "engine_kwargs": {"max_num_seqs": 8, "max_num_batched_tokens": 512},
"kv_cache": {"num_gpu_blocks": 500, "block_size": 16}}`)
	return dir
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestWorkerFit(t *testing.T) {
	dir := recordRun(t)
	profile := filepath.Join(t.TempDir(), "mine.yaml")
	var out, log bytes.Buffer
	if code := Main([]string{"worker", "fit", dir, "--fit-on", "16", "--out", profile, "--json"}, &out, &log); code != exitPass {
		t.Fatalf("exit %d: %s", code, &log)
	}
	var r fit.Report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if r.Profile != "mine" || r.FittedOn != 16 || len(r.Errors) != 12 || len(r.SeenErrors) != 12 || r.Worst <= 0 || r.Worst > 0.15 || len(r.Assumed) != 0 {
		t.Errorf("%+v", r)
	}
	// What was written is what was scored, also beside the table that people read.
	out.Reset()
	if code := Main([]string{"worker", "fit", dir, "--profile", profile, "--sensitivity"}, &out, &log); code != exitPass {
		t.Fatalf("exit %d: %s", code, &log)
	}
	for _, want := range []string{"not fitted", fmt.Sprintf("worst: %s, %.1f %%", r.WorstFigure, r.Worst*100), "TPOT p90", "num_blocks"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}

func TestWorkerFitRefuses(t *testing.T) {
	dir := recordRun(t)
	torn := recordRun(t)
	write(t, torn, "requests.jsonl", `{"request_id": "a", "input_toks": 3`)
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "want one folder"},
		{[]string{"/nowhere"}, "run /nowhere: opening what a run's engine was"},
		{[]string{torn}, "requests.jsonl: line 1: unexpected end"},
		{[]string{dir, "--fit-on", "25"}, "--fit-on: fitting on the first 25 requests: the run has 24"},
		{[]string{dir, "--fit-on", "-1"}, "the run has 24"},
		{[]string{dir, "--profile", "warp"}, `unknown timing profile "warp"`},
		{[]string{dir, "--profile", "fast", "--out", "x"}, "--out and --profile"},
		{[]string{dir, "--max-num-seqs", "-2"}, "--max-num-seqs -2"},
		{[]string{dir, "--num-gpu-blocks-override", "5"}, "cannot be simulated"},
		{[]string{dir, "--refit", "5"}, "--refit: only with --published-fleet"},
		{[]string{dir, "--published-fleet", "--fit-on", "5"}, "--fit-on: not with --published-fleet"},
		{[]string{"--published-fleet", "--profile", "fast"}, "want one trace"},
		{[]string{"--published-fleet", "/nowhere.jsonl", "--profile", "fast"}, "/nowhere.jsonl"},
		{[]string{"--published-fleet", "x", "--rate", "0"}, "rate above zero"},
	} {
		var out, log bytes.Buffer
		code := Main(append([]string{"worker", "fit"}, c.args...), &out, &log)
		if code != exitUsage || !strings.Contains(log.String(), c.want) {
			t.Errorf("%q: exit %d, %q, want %d and %q", c.args, code, log.String(), exitUsage, c.want)
		}
	}
}

func TestPublishedFleet(t *testing.T) {
	trace := filepath.Join(t.TempDir(), "t.jsonl")
	var out, log bytes.Buffer
	if code := Main([]string{"trace", "generate", "--rows", "60", "--span", "30s", "--max-input", "8000", "--out", trace}, &out, &log); code != exitPass {
		t.Fatalf("exit %d: %s", code, &log)
	}
	if code := Main([]string{"worker", "fit", "--published-fleet", trace, "--profile", "qwen3-8b-published-curve", "--json"}, &out, &log); code != exitPass {
		t.Fatalf("exit %d: %s", code, &log)
	}
	var r fleetReport
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Candidates) != 1 || len(r.Candidates[0].Rows) != 6 || r.Requests == 0 || r.Rate != 16.6 {
		t.Errorf("%+v", r)
	}
}
