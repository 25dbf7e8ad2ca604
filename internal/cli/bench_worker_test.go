package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"fleetdrill/internal/contract"
	"fleetdrill/mockworker"
	"fleetdrill/replayer/workerbench"
)

func runBench(args ...string) (stdout string, code int, err error) {
	var out, errOut bytes.Buffer
	root := newRoot(&out, &errOut)
	root.SetArgs(append([]string{"bench"}, args...))
	err = root.Execute()
	return out.String(), exitCode(err), err
}

// peerEngine is an engine that runs beside the bench, in this process.
func peerEngine(t *testing.T) contract.ReadyWorker {
	t.Helper()
	var c mockworker.Config
	mockworker.AddFlags(pflag.NewFlagSet("worker", pflag.ContinueOnError), &c)
	c.Port, c.KVEventsConfig = 0, `{"enable_kv_cache_events": true, "endpoint": "tcp://*:0"}`
	c.ReadyFile = filepath.Join(t.TempDir(), "ready.json")
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mockworker.Run(ctx, c) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	for {
		text, err := os.ReadFile(c.ReadyFile)
		var f contract.ReadyFile
		if err == nil && json.Unmarshal(text, &f) == nil {
			return f.Workers[0]
		}
		select {
		case err := <-ended:
			t.Fatalf("the peer ended: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
}

// Every part of the bench, on real processes, in its shortest form: each figure is there, the facts among
// them are exact, and a peer stands beside.
func TestBenchWorkerMeasuresEverything(t *testing.T) {
	t.Setenv(asFleetdrill, "1")
	w := peerEngine(t)
	text, code, err := runBench("worker", "--quick", "--json", "--peer-url", w.HTTP, "--peer-events", w.Ranks[0].Events)
	if code != exitPass {
		t.Fatal(err)
	}
	var res workerbench.Result
	if err := json.Unmarshal([]byte(text), &res); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	rows := map[string]workerbench.Row{}
	for _, r := range res.Rows {
		rows[r.Figure] = r
		if r.Value < 0 || r.Runs < 1 || r.Low > r.Value || r.High < r.Value {
			t.Errorf("%s: %+v", r.Figure, r)
		}
	}
	for figure, want := range map[string]float64{
		"successes counted for each served, after an overload": 1,
		"requests counted as running, after an overload":       0,
		"batches that the subscriber did not get":              0,
	} {
		if r, ok := rows[figure]; !ok || r.Value != want {
			t.Errorf("%s is %+v, want %v", figure, r, want)
		}
	}
	for _, figure := range []string{
		"start to /health 200", "idle worker, resident", "128 idle workers in one process, CPU", "tiny completions, 16 clients",
		"CPU of a streamed token, 1,000 streams", "KV block events on the wire, pool of 16,384 blocks full", "memory of a cached block",
		"client gone until its slots and blocks are free",
	} {
		if _, ok := rows[figure]; !ok {
			t.Errorf("%s was not measured", figure)
		}
	}
	if r := rows["tiny completions, 16 clients"]; r.Peer == nil || r.Ratio == nil {
		t.Errorf("no peer beside %+v", r)
	}
	if len(res.Skipped) == 0 || !strings.Contains(strings.Join(res.Skipped, "\n"), "--peer-pid") {
		t.Errorf("skipped: %q", res.Skipped)
	}
}

func TestBenchWorkerMistakesAreUsageErrors(t *testing.T) {
	for _, args := range [][]string{
		{"worker", "--only", "everything"}, {"worker", "--peer-url", "localhost"}, {"worker", "--peer-url", "http://127.0.0.1:1/v1"},
		{"worker", "--peer-pid", "1"}, {"worker", "more"}, {"works"},
	} {
		if _, code, err := runBench(args...); code != exitUsage {
			t.Errorf("%q ends with %d, %v", args, code, err)
		}
	}
}
