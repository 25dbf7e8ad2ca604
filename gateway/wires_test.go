package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"fleetdrill/internal/contract"
	"fleetdrill/mockworker"
	"fleetdrill/mockworker/wire"
	"fleetdrill/oracle"
)

// spoken is what one engine of the fleet of all wires sends.
type spoken struct {
	wire  string
	bytes bool // hashes
}

// dialects are every wire profile, those with byte hashes in that form too.
func dialects() (out []spoken) {
	for _, name := range wire.Names() {
		out = append(out, spoken{wire: name})
		if _, err := wire.New(name, wire.Options{}); err == nil {
			out = append(out, spoken{wire: name, bytes: true})
		}
	}
	return out
}

// TestEveryWire follows an engine of every wire profile. It joins late, so the beginning comes by replay,
// and loses three batches on the way, which come by replay, too. In the end the index must be what each
// engine announced, block for block.
func TestEveryWire(t *testing.T) {
	list := dialects()
	c := DefaultConfig()
	var engines []contract.ReadyWorker
	for i, d := range list {
		w := speak(t, fmt.Sprintf("w%d", i+1), d)
		engines = append(engines, w)
		c.Workers = append(c.Workers, contract.WorkerSpec{ID: w.ID, URL: w.HTTP, KVEvents: &contract.KVEventsSpec{
			Endpoint: w.Ranks[0].Events, ReplayEndpoint: w.Ranks[0].Replay}})
		fill(t, w, 0, 6)
	}
	g := follow(t, c)
	g.live(t, len(engines))
	for i, w := range engines {
		fill(t, w, 6, 9)
		gaps := func() int64 { return g.workers(t)[i].Ranks[0].Counters.Gaps }
		// Should a second pass between two batches, the end of the stream is looked at, and no gap shows.
		for n := 9; n == 9 || gaps() == 0 && n < 60; n += 6 {
			post(t, w.Admin+"/admin/faults", `{"kind": "drop_batches", "count": 3, "replay": "keep"}`)
			fill(t, w, n, n+6)
			g.caughtUpWith(t, i, w)
		}
	}
	g.equal(t, engines, list)
	for i, w := range g.workers(t) {
		n := w.Ranks[0].Counters
		if n.Replayed == 0 || n.Gaps == 0 || n.Unrecovered != 0 || n.Orphans != 0 || len(n.Drops) != 0 {
			t.Errorf("%+v: replayed %d, gaps %d, unrecovered %d, orphans %d, drops %v",
				list[i], n.Replayed, n.Gaps, n.Unrecovered, n.Orphans, n.Drops)
		}
	}
}

// speak runs one mock engine with a pool so small that blocks are evicted.
func speak(t *testing.T, id string, d spoken) contract.ReadyWorker {
	t.Helper()
	var c mockworker.Config
	mockworker.AddFlags(pflag.NewFlagSet("worker", pflag.ContinueOnError), &c)
	c.Port, c.IDs, c.Wire, c.IntBlockHashes = 0, []string{id}, d.wire, !d.bytes
	c.NumGPUBlocksOverride, c.MaxModelLen = 40, 400
	c.KVEventsConfig = `{"enable_kv_cache_events": true, "endpoint": "tcp://*:0", "replay_endpoint": "tcp://*:0", "topic": "kv-events"}`
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
	until(t, "an engine of "+d.wire, func() bool { return readJSON(c.ReadyFile, &ready) })
	return ready.Workers[0]
}

func readJSON(file string, into any) bool {
	text, err := os.ReadFile(file)
	return err == nil && json.Unmarshal(text, into) == nil
}

// fill sends prompts from..to, each 100 tokens of its own behind 64 that all share. Every third one has a
// salt, and shares nothing.
func fill(t *testing.T, w contract.ReadyWorker, from, to int) {
	t.Helper()
	for n := from; n < to; n++ {
		ids := make([]int, 164)
		for i := range ids {
			ids[i] = 1000 + i
			if i >= 64 {
				ids[i] += 1000 * (n + 1)
			}
		}
		body := map[string]any{"model": "mock-8b", "prompt": ids, "max_tokens": 20}
		if n%3 == 2 {
			body["cache_salt"] = fmt.Sprint("salt-", n)
		}
		text, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		post(t, w.HTTP+"/v1/completions", string(text))
	}
}

func post(t *testing.T, url, body string) {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
		t.Fatalf("POST %s: %d %s", url, resp.StatusCode, text)
	}
}

// follow runs a gateway in front of mock engines.
func follow(t *testing.T, c Config) *running {
	t.Helper()
	c.ReadyFile = filepath.Join(t.TempDir(), "gateway.json")
	ctx, cancel := context.WithCancel(context.Background())
	g := &running{stop: cancel, ended: make(chan error, 1)}
	go func() { g.ended <- Run(ctx, c) }()
	t.Cleanup(func() {
		cancel()
		http.DefaultClient.CloseIdleConnections()
		if err := <-g.ended; err != nil {
			t.Error(err)
		}
	})
	until(t, "the gateway's ready file", func() bool { return readJSON(c.ReadyFile, &g.ready) })
	return g
}

// read decodes the answer to a GET.
func read(t *testing.T, url string, into any) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		t.Fatal(err)
	}
}

func (g *running) workers(t *testing.T) []contract.RoutingWorker {
	t.Helper()
	var state contract.RoutingState
	read(t, g.ready.Gateway.Admin+"/routing/state", &state)
	return state.Workers
}

func (g *running) live(t *testing.T, n int) {
	t.Helper()
	until(t, "every stream to be live", func() bool {
		live := 0
		for _, w := range g.workers(t) {
			if w.Ranks[0].Stream == contract.StreamLive {
				live++
			}
		}
		return live == n
	})
}

// truthOf is what an engine says of itself. Its server does not wait long for it, and without its answer tells
// what it knows anyway, which a batch on its way out may be missing from.
func truthOf(t *testing.T, w contract.ReadyWorker) (truth contract.Truth) {
	t.Helper()
	until(t, w.ID+" to answer for itself", func() bool {
		read(t, w.Admin+"/admin/truth", &truth)
		return truth.Ranks[0].ResidentMonoNs >= truth.MonoNs
	})
	return truth
}

// caughtUp waits until the gateway has read every batch of every engine.
func (g *running) caughtUp(t *testing.T, engines []contract.ReadyWorker) {
	t.Helper()
	for i, e := range engines {
		g.caughtUpWith(t, i, e)
	}
}

// caughtUpWith waits for the gateway's worker i.
func (g *running) caughtUpWith(t *testing.T, i int, e contract.ReadyWorker) {
	t.Helper()
	truth := truthOf(t, e)
	until(t, e.ID+" to be read to its end", func() bool {
		r := g.workers(t)[i].Ranks[0]
		return r.NextSeq >= truth.Ranks[0].NextSeq && r.Stream == contract.StreamLive
	})
}

func (g *running) equal(t *testing.T, engines []contract.ReadyWorker, list []spoken) {
	t.Helper()
	var admins []oracle.WorkerAdmin
	for _, e := range engines {
		admins = append(admins, oracle.WorkerAdmin{ID: e.ID, AdminURL: e.Admin})
	}
	report, err := oracle.Verify(context.Background(), g.ready.Gateway.Admin, admins)
	if err != nil {
		t.Fatal(err)
	}
	for i, row := range report.Workers {
		if !row.Equal || row.EngineBlocks < 20 {
			t.Errorf("%+v: %+v", list[i], row)
		}
	}
}
