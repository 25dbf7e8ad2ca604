package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"fleetdrill/internal/contract"
	"fleetdrill/mockworker"
	"fleetdrill/oracle"
)

// TestSGLangEngines follows SGLang engines of both wires, and one with pages of token pairs, under load that
// comes through the gateway and evicts all the time, over a flush and over a restart with an empty cache. The
// index must be what each engine announced, block for block, its own clear included.
func TestSGLangEngines(t *testing.T) {
	for _, e := range []struct{ wire, speculative string }{{"sglang-array", ""}, {"sglang-map", ""}, {"sglang-map", "EAGLE"}} {
		t.Run(e.wire+e.speculative, func(t *testing.T) {
			w := sglang(t, e.wire, e.speculative)
			c := DefaultConfig()
			c.Workers = []contract.WorkerSpec{{ID: w.ID, URL: w.HTTP, KVEvents: &contract.KVEventsSpec{
				Endpoint: w.Ranks[0].Events, ReplayEndpoint: w.Ranks[0].Replay}}}
			g := follow(t, c)
			g.live(t, 1)
			until(t, "readiness", func() bool { return g.get(t, g.ready.Gateway.HTTP+"/readiness") == http.StatusOK })
			g.load(t, 0, 60)
			g.equalAt(t, w)
			if n := journalOf(t, w); n.removed == 0 || n.cleared != 1 {
				t.Errorf("%+v after the load, want removals and the clear of the beginning", n)
			}
			if n := g.workers(t)[0].Ranks[0].Counters; n.Unrecovered != 0 || n.Orphans != 0 || len(n.Drops) != 0 || len(n.Restarts) != 0 {
				t.Errorf("unrecovered %d, orphans %d, drops %v, restarts %v", n.Unrecovered, n.Orphans, n.Drops, n.Restarts)
			}
			until(t, "a flush", func() bool { return tryFlush(t, w) }) // the engine is idle after its next step
			until(t, "the clear of the flush", func() bool { return journalOf(t, w).cleared == 2 })
			g.equalAt(t, w)
			g.load(t, 60, 90)
			g.equalAt(t, w)
			post(t, w.Admin+"/admin/faults", `{"kind": "restart_publisher", "cache": "empty"}`)
			g.load(t, 90, 110)
			g.equalAt(t, w)
		})
	}
}

// sglang runs one SGLang engine with a pool so small that its tree is evicted leaf by leaf.
func sglang(t *testing.T, wire, speculative string) contract.ReadyWorker {
	t.Helper()
	var c mockworker.Config
	mockworker.AddFlags(pflag.NewFlagSet("worker", pflag.ContinueOnError), &c)
	c.Port, c.Wire, c.NumGPUBlocksOverride, c.MaxModelLen, c.MaxNumBatchedTokens = 0, wire, 80, 800, 128
	c.SpeculativeAlgo = speculative
	c.KVEventsConfig = `{"enable_kv_cache_events": true, "endpoint": "tcp://*:0", "replay_endpoint": "tcp://*:0"}`
	c.TimeoutKeepAlive = 10 * time.Minute // no request of a held up process meets a closing connection
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
	var ready contract.ReadyFile
	until(t, "an SGLang engine", func() bool { return readJSON(c.ReadyFile, &ready) })
	return ready.Workers[0]
}

// load sends requests from..to through the gateway, eight at once: prompts of 64 shared tokens and 200 of
// their own, outputs of 60.
func (g *running) load(t *testing.T, from, to int) {
	t.Helper()
	var wg sync.WaitGroup
	places := make(chan struct{}, 8)
	for n := from; n < to; n++ {
		ids := make([]int, 264)
		for i := range ids {
			ids[i] = 1000 + i
			if i >= 64 {
				ids[i] += 1000 * (n + 1)
			}
		}
		body := map[string]any{"model": "mock-8b", "prompt": ids, "max_tokens": 60}
		if n%5 == 4 {
			body["cache_salt"] = fmt.Sprint("salt-", n%2)
		}
		text, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			post(t, g.ready.Gateway.HTTP+"/v1/completions", string(text))
		})
	}
	wg.Wait()
}

// equalAt waits until the gateway has read all that the engine sent, and compares.
func (g *running) equalAt(t *testing.T, w contract.ReadyWorker) {
	t.Helper()
	g.caughtUp(t, []contract.ReadyWorker{w})
	report, err := oracle.Verify(context.Background(), g.ready.Gateway.Admin, []oracle.WorkerAdmin{{ID: w.ID, AdminURL: w.Admin}})
	if err != nil {
		t.Fatal(err)
	}
	truth := truthOf(t, w)
	for _, row := range report.Workers {
		if !row.Equal {
			t.Errorf("%+v", row)
		}
	}
	if r := truth.Ranks[0]; r.Unannounced != 0 || r.Ghost != 0 {
		t.Errorf("%d blocks are unannounced, %d are ghosts", r.Unannounced, r.Ghost)
	}
}

// told counts what an engine's journal says it published.
type told struct{ removed, cleared int }

func journalOf(t *testing.T, w contract.ReadyWorker) (n told) {
	t.Helper()
	resp, err := http.Get(w.Admin + "/admin/truth/journal")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for dec := json.NewDecoder(resp.Body); dec.More(); {
		var line contract.TruthJournal
		if err := dec.Decode(&line); err != nil {
			t.Fatal(err)
		}
		n.removed += len(line.Removed)
		if line.Cleared {
			n.cleared++
		}
	}
	return n
}

func tryFlush(t *testing.T, w contract.ReadyWorker) bool {
	t.Helper()
	resp, err := http.Post(w.HTTP+"/flush_cache", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode == http.StatusOK
}
