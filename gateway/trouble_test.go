package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"fleetdrill/gateway/policy"
	"fleetdrill/internal/contract"
	"fleetdrill/internal/linkproxy"
	"fleetdrill/internal/supervise"
	"fleetdrill/internal/tokens"
	"fleetdrill/mockworker"
)

// These tests break real processes: mock workers in processes of their own, links with a fault proxy, and
// the gateway in front. They say what happens and log how long it took; the bounds themselves are held by
// the stories of fleet and recovery, whose time is simulated.

// asWorkers as first argument makes the test binary a process of mock workers.
const asWorkers = "run-mock-workers"

// runWorkers serves mock workers until TERM, with the flags of `fleetdrill worker`.
func runWorkers(args []string) int {
	var c mockworker.Config
	fs := pflag.NewFlagSet("workers", pflag.ContinueOnError)
	mockworker.AddFlags(fs, &c)
	err := fs.Parse(args)
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		err = mockworker.Run(ctx, c)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// troubled is w1, in a process of its own and behind a fault proxy, w2 and w3, and a gateway that has them
// all in its routing.
type troubled struct {
	*running
	t      *testing.T
	w1     *supervise.Child
	link   *linkproxy.Proxy // in front of w1's request port
	admin  string           // of w1
	client *http.Client
	ctx    context.Context
	wg     sync.WaitGroup // requests under way
}

func newTroubled(t *testing.T, tune func(*Config)) *troubled {
	t.Helper()
	own := supervise.New(supervise.Options{})
	ctx, cancel := context.WithCancel(context.Background())
	g := &troubled{t: t, ctx: ctx, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	t.Cleanup(func() {
		if err := own.Close(); err != nil {
			t.Error(err)
		}
	})
	c := DefaultConfig()
	c.ReadyFile = filepath.Join(t.TempDir(), "gateway.json")
	var workers []contract.ReadyWorker
	for _, ids := range []string{"w1", "w2,w3"} {
		child, ready := g.workers(own, ids)
		if g.w1 == nil {
			g.w1 = child
		}
		workers = append(workers, ready...)
	}
	g.admin = workers[0].Admin
	g.link = linkproxy.New(linkproxy.Options{Upstream: strings.TrimPrefix(workers[0].HTTP, "http://"), Listen: "127.0.0.1:0", HTTP: true})
	if err := g.link.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.link.Close() })
	workers[0].HTTP = "http://" + g.link.Addr()
	for _, w := range workers {
		c.Workers = append(c.Workers, contract.WorkerSpec{ID: w.ID, URL: w.HTTP, KVEvents: &contract.KVEventsSpec{
			Endpoint: w.Ranks[0].Events, ReplayEndpoint: w.Ranks[0].Replay}})
	}
	if tune != nil {
		tune(&c)
	}
	gctx, stop := context.WithCancel(context.Background())
	g.running = &running{stop: stop, ended: make(chan error, 1)}
	go func() { g.ended <- Run(gctx, c) }()
	t.Cleanup(func() {
		cancel()
		g.wg.Wait()
		g.client.CloseIdleConnections()
		g.stop()
		if err := <-g.ended; err != nil {
			t.Error(err)
		}
	})
	until(t, "the gateway's ready file", func() bool {
		text, err := os.ReadFile(c.ReadyFile)
		return err == nil && json.Unmarshal(text, &g.ready) == nil
	})
	g.until("a fleet that is whole", func(ws []contract.RoutingWorker) bool {
		whole := true
		for _, w := range ws {
			whole = whole && w.Routable && w.Load != nil && w.Ranks[0].Stream == contract.StreamLive
		}
		return whole
	})
	return g
}

// workers starts a process of mock workers with these ids.
func (g *troubled) workers(own *supervise.Supervisor, ids string) (*supervise.Child, []contract.ReadyWorker) {
	g.t.Helper()
	file := filepath.Join(g.t.TempDir(), "ready.json")
	child, err := own.Start(supervise.Spec{Name: ids, Path: os.Args[0], Stderr: os.Stderr, Args: []string{asWorkers,
		"--port", "0", "--profile", "drill", "--id", ids, "--count", fmt.Sprint(1 + strings.Count(ids, ",")), "--ready-file", file,
		"--kv-events-config", `{"enable_kv_cache_events": true, "endpoint": "tcp://*:0", "replay_endpoint": "tcp://*:0"}`}})
	if err != nil {
		g.t.Fatal(err)
	}
	var ready contract.ReadyFile
	until(g.t, "the workers' ready file", func() bool {
		text, err := os.ReadFile(file)
		return err == nil && json.Unmarshal(text, &ready) == nil
	})
	return child, ready.Workers
}

func (g *troubled) state() contract.RoutingState {
	g.t.Helper()
	var state contract.RoutingState
	g.call(http.MethodGet, g.ready.Gateway.Admin+"/routing/state", "", &state)
	return state
}

// until waits for a state of the workers and says how long it took.
func (g *troubled) until(what string, ok func([]contract.RoutingWorker) bool) time.Duration {
	g.t.Helper()
	start := time.Now()
	until(g.t, what, func() bool { return ok(g.state().Workers) })
	took := time.Since(start)
	g.t.Logf("%s after %d ms", what, took.Milliseconds())
	return took
}

// vetoed waits until w1 is out for this reason.
func (g *troubled) vetoed(reason string) {
	g.t.Helper()
	g.until("w1 "+reason, func(ws []contract.RoutingWorker) bool {
		return !ws[0].Routable && ws[0].Veto != nil && ws[0].Veto.Reason == reason
	})
}

func (g *troubled) back() {
	g.t.Helper()
	g.until("w1 back", func(ws []contract.RoutingWorker) bool { return ws[0].Routable })
}

// call makes a request that must succeed and decodes its answer.
func (g *troubled) call(method, url, body string, into any) {
	g.t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := g.client.Do(req)
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode/100 != 2 {
		g.t.Fatalf("%s %s: %d %s %v", method, url, resp.StatusCode, text, err)
	}
	if into != nil {
		if err := json.Unmarshal(text, into); err != nil {
			g.t.Fatal(err)
		}
	}
}

// fault arms a fault of w1 and returns what heals it.
func (g *troubled) fault(body string) (heal func()) {
	g.t.Helper()
	var armed contract.FaultArmedReply
	g.call(http.MethodPost, g.admin+"/admin/faults", body, &armed)
	return func() {
		g.t.Helper()
		g.call(http.MethodDelete, g.admin+"/admin/faults/"+armed.ID, "", nil)
	}
}

// send makes a request with a prompt that nobody has seen, in the background. How it ends is not looked at.
func (g *troubled) send(streamed bool, output int) {
	ids := make([]uint32, 400)
	for i := range ids {
		ids[i] = tokens.FirstWord + rand.Uint32N(100_000)
	}
	body, err := json.Marshal(map[string]any{"model": "mock-8b", "prompt": ids, "stream": streamed, "max_tokens": output, "ignore_eos": true})
	if err != nil {
		g.t.Fatal(err)
	}
	g.wg.Go(func() { g.exchange(body) })
}

func (g *troubled) exchange(body []byte) {
	req, err := http.NewRequestWithContext(g.ctx, http.MethodPost, g.ready.Gateway.HTTP+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		return
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := g.client.Do(req)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
}

// load sends n requests a second until the returned func is called.
func (g *troubled) load(n int) (stop func()) {
	ctx, cancel := context.WithCancel(g.ctx)
	g.wg.Go(func() {
		ticker := time.NewTicker(time.Second / time.Duration(n))
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				g.send(true, 32)
			}
		}
	})
	return cancel
}

func roundRobin(c *Config) { c.Policy = policy.RoundRobin }

// The step loop freezes while /health answers 200 and a request or two is owed: no pile, and with whole
// answers no byte either.
func TestWedgedWorkerIsOut(t *testing.T) {
	for _, c := range []struct {
		name     string
		kind     string
		streamed bool
		owed     int64
	}{
		{"one stream", contract.FaultWedge, true, 1},
		{"one whole answer", contract.FaultPause, false, 1},
		{"two whole answers", contract.FaultWedge, false, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newTroubled(t, roundRobin)
			for inflight := int64(0); inflight < c.owed; inflight = g.state().Workers[0].Inflight {
				g.send(c.streamed, 8000)
				g.until("one more placed", func(ws []contract.RoutingWorker) bool {
					return ws[0].Inflight+ws[1].Inflight+ws[2].Inflight > 0
				})
			}
			heal := g.fault(fmt.Sprintf(`{"kind":%q}`, c.kind))
			g.vetoed(contract.VetoWedged)
			heal()
			g.back()
		})
	}
}

// A stopped process says nothing at all.
func TestFrozenProcessIsOut(t *testing.T) {
	t.Parallel()
	g := newTroubled(t, nil)
	stop := g.load(30)
	g.until("requests on w1", func(ws []contract.RoutingWorker) bool { return ws[0].Dispatches > 3 })
	if err := g.w1.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	g.vetoed(contract.VetoPartitioned)
	if err := g.w1.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	g.back()
	stop()
}

// A link that swallows everything both ways while its connections stand.
func TestHeldLinkIsOut(t *testing.T) {
	t.Parallel()
	g := newTroubled(t, nil)
	stop := g.load(30)
	g.until("requests on w1", func(ws []contract.RoutingWorker) bool { return ws[0].Dispatches > 3 })
	g.link.Hold()
	g.vetoed(contract.VetoPartitioned)
	g.link.Release()
	g.back()
	stop()
}

func TestDroppedBatchesAreReplayed(t *testing.T) {
	t.Parallel()
	g := newTroubled(t, roundRobin)
	stop := g.load(60)
	g.until("batches of w1", func(ws []contract.RoutingWorker) bool { return ws[0].Ranks[0].NextSeq > 20 })
	counters := func() contract.RankCounters { return g.state().Workers[0].Ranks[0].Counters }
	// A second without a batch, which on a slow machine 20 dropped ones can make, has the end of the stream
	// looked at, and no gap shows. Then it is done again.
	for counters().Refilled == 0 {
		replayed := counters().Replayed
		g.fault(`{"kind":"drop_batches","count":20}`)
		g.until("20 replayed", func(ws []contract.RoutingWorker) bool { return ws[0].Ranks[0].Counters.Replayed >= replayed+20 })
	}
	stop()
	// The replay has them all, so the index was exact all the time.
	if r := g.state().Workers[0].Ranks[0]; r.Counters.Unrecovered != 0 || r.Quality != contract.QualityExact || r.Counters.Gaps == 0 {
		t.Errorf("rank %+v", r)
	}
	g.call(http.MethodPut, g.ready.Gateway.Admin+"/routing/handicaps", `{"handicaps":["gap-recovery-off"]}`, nil)
	stop = g.load(60)
	g.fault(`{"kind":"drop_batches","count":20}`)
	g.until("20 unrecovered under the handicap", func(ws []contract.RoutingWorker) bool { return ws[0].Ranks[0].Counters.Unrecovered >= 20 })
	stop()
}

// The publisher begins anew while the engine keeps its cache: what the index had is gone with the first
// batch, and the emptied worker is routed to again. So it is when the socket is a new one, and when the new
// publisher was past the old cursor before anybody listened.
func TestRestartedPublisherIsAResync(t *testing.T) {
	for name, params := range map[string]string{
		"same socket": `"socket":"keep"`,
		"new socket":  `"socket":"rebind"`,
		"ahead":       `"socket":"rebind","ahead":2000`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newTroubled(t, nil)
			stop := g.load(60)
			g.until("a fleet with warm caches", func(ws []contract.RoutingWorker) bool {
				return min(ws[0].Ranks[0].Blocks, ws[1].Ranks[0].Blocks, ws[2].Ranks[0].Blocks) >= 1100
			})
			// What comes to w1 is sparse now, and fills it far slower than anybody looks.
			stop()
			g.until("a fleet at rest", func(ws []contract.RoutingWorker) bool {
				return ws[0].Inflight+ws[1].Inflight+ws[2].Inflight == 0
			})
			before := g.state().Workers[0].Ranks[0]
			g.fault(`{"kind":"restart_publisher","cache":"keep",` + params + `}`)
			var after contract.RoutingRank
			g.until("a resync", func(ws []contract.RoutingWorker) bool {
				if ws[0].Inflight+ws[1].Inflight+ws[2].Inflight == 0 {
					g.send(true, 8)
				}
				after = ws[0].Ranks[0]
				return after.Counters.Resyncs[contract.ResyncRestart] == 1
			})
			if after.Epoch != before.Epoch+1 || after.Blocks >= before.Blocks/2 {
				t.Errorf("before the restart %+v, after it %+v", before, after)
			}
			g.until("w1 thin", func(ws []contract.RoutingWorker) bool { return ws[0].Thin })
			stop = g.load(60)
			defer stop()
			dispatches := g.state().Workers[0].Dispatches
			g.until("w1 routed to", func(ws []contract.RoutingWorker) bool { return ws[0].Dispatches > dispatches })
		})
	}
}
