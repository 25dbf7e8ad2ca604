package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"fleetdrill/internal/contract"
	"fleetdrill/internal/supervise"
	"fleetdrill/oracle"
)

// TestHostTier follows an engine in a process of its own, whose device is far too small and whose host takes
// what falls out. What the gateway predicts for a request is what the engine then serves from cache, from either
// tier, and in the end both tiers are what the engine announced. Offloads are by name, described, or SGLang's.
func TestHostTier(t *testing.T) {
	for _, flags := range []string{
		"--host-events-described=false", "--host-events-described", "--wire=sglang-map --enable-cache-report",
		"--wire=sglang-array --enable-cache-report --hicache-write-policy=write_back",
	} {
		t.Run(flags, func(t *testing.T) {
			w := process(t, append([]string{"--num-gpu-blocks-override", "60", "--host-blocks", "120", "--max-model-len", "400"}, strings.Fields(flags)...)...)
			g := inFront(t, w)
			fromHost := 0
			for n := range 60 {
				q := question{prompt: promptOf(n % 12), output: 20}
				device := deviceMatch(t, w, q.prompt)
				a := g.ask(t, q)
				if a.predicted != a.cached {
					t.Errorf("request %d: %d tokens were predicted, %d served from cache", n, a.predicted, a.cached)
				}
				if a.cached > 16*device {
					fromHost++
				}
				g.caughtUp(t, []contract.ReadyWorker{w})
			}
			if fromHost < 10 {
				t.Errorf("%d requests found something on the host alone, which this is about", fromHost)
			}
			g.crowd(t, 60, func(n int) question { return question{prompt: promptOf(n * 7 % 25), output: 30} })
			g.equalTiers(t, w, 20)
			if n := g.workers(t)[0].Ranks[0].Counters; n.Orphans != 0 || len(n.Drops) != 0 || n.Unrecovered != 0 {
				t.Errorf("orphans %d, drops %v, unrecovered %d", n.Orphans, n.Drops, n.Unrecovered)
			}
		})
	}
}

// A publisher that restarts and keeps its cache never announces again what it holds. What of that moves to the
// host afterwards is named without a place: the gateway counts it and does not guess, and verify says so. The
// device's side is equal all the same.
func TestHostNamesAfterAPublisherRestart(t *testing.T) {
	w := process(t, "--num-gpu-blocks-override", "60", "--host-blocks", "120", "--max-model-len", "400")
	g := inFront(t, w)
	for n := range 4 {
		g.ask(t, question{prompt: promptOf(n), output: 20})
	}
	post(t, w.Admin+"/admin/faults", `{"kind": "restart_publisher", "cache": "keep"}`)
	for n := range 10 {
		g.ask(t, question{prompt: promptOf(20 + n)[64:], output: 20}) // under nothing from before
	}
	g.caughtUp(t, []contract.ReadyWorker{w})
	report, err := oracle.Verify(context.Background(), g.ready.Gateway.Admin, []oracle.WorkerAdmin{{ID: w.ID, AdminURL: w.Admin}})
	if err != nil {
		t.Fatal(err)
	}
	row := report.Workers[0]
	lost := row.HostEngineBlocks - row.HostGatewayBlocks
	if lost == 0 || row.Missing != lost || row.Orphans < int64(lost) || row.Extra+row.Moved != 0 || row.GatewayBlocks != row.EngineBlocks {
		t.Errorf("%+v", row)
	}
}

// process runs one mock worker in a process of its own.
func process(t *testing.T, flags ...string) contract.ReadyWorker {
	t.Helper()
	own := supervise.New(supervise.Options{})
	t.Cleanup(func() {
		if err := own.Close(); err != nil {
			t.Error(err)
		}
	})
	file := filepath.Join(t.TempDir(), "ready.json")
	args := append([]string{asWorkers, "--port", "0", "--profile", "fast", "--id", "w1", "--ready-file", file,
		"--kv-events-config", `{"enable_kv_cache_events": true, "endpoint": "tcp://*:0", "replay_endpoint": "tcp://*:0"}`}, flags...)
	if _, err := own.Start(supervise.Spec{Name: "w1", Path: os.Args[0], Stderr: os.Stderr, Args: args}); err != nil {
		t.Fatal(err)
	}
	var ready contract.ReadyFile
	until(t, "the worker's ready file", func() bool { return readJSON(file, &ready) })
	return ready.Workers[0]
}

// inFront runs a gateway in front of one worker and waits until both can be used.
func inFront(t *testing.T, w contract.ReadyWorker) *running {
	t.Helper()
	c := DefaultConfig()
	c.Workers = []contract.WorkerSpec{{ID: w.ID, URL: w.HTTP, KVEvents: &contract.KVEventsSpec{
		Endpoint: w.Ranks[0].Events, ReplayEndpoint: w.Ranks[0].Replay}}}
	g := follow(t, c)
	g.live(t, 1)
	until(t, "readiness", func() bool { return g.get(t, g.ready.Gateway.HTTP+"/readiness") == http.StatusOK })
	return g
}

// promptOf is 64 tokens that all share and 100 of its own.
func promptOf(n int) []int {
	ids := make([]int, 164)
	for i := range ids {
		ids[i] = 1000 + i
		if i >= 64 {
			ids[i] += 1000 * (n + 1)
		}
	}
	return ids
}

// question is a request, answered what came of it.
type question struct {
	model, salt string
	prompt      []int
	output      int
}

type answered struct{ predicted, cached int }

func (g *running) ask(t *testing.T, q question) (a answered) {
	t.Helper()
	body := map[string]any{"model": q.model, "prompt": q.prompt, "max_tokens": q.output}
	if q.salt != "" {
		body["cache_salt"] = q.salt
	}
	if q.model == "" {
		delete(body, "model")
	}
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(g.ready.Gateway.HTTP+"/v1/completions", "application/json", bytes.NewReader(text))
	if err != nil {
		t.Error(err)
		return a
	}
	defer resp.Body.Close()
	var out struct {
		Usage struct {
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		} `json:"usage"`
	}
	raw, err := io.ReadAll(resp.Body)
	if err == nil {
		err = json.Unmarshal(raw, &out)
	}
	if err == nil {
		a.predicted, err = strconv.Atoi(resp.Header.Get("X-Predicted-Cached-Tokens"))
	}
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("%d %s: %v", resp.StatusCode, raw, err)
	}
	a.cached = out.Usage.Details.Cached
	return a
}

// crowd sends n requests, eight at once.
func (g *running) crowd(t *testing.T, n int, q func(int) question) {
	t.Helper()
	var wg sync.WaitGroup
	places := make(chan struct{}, 8)
	for i := range n {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			g.ask(t, q(i))
		})
	}
	wg.Wait()
}

// deviceMatch is how many leading blocks of a prompt the engine has on the device.
func deviceMatch(t *testing.T, w contract.ReadyWorker, prompt []int) int {
	t.Helper()
	text, err := json.Marshal(map[string]any{"token_ids": prompt})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(w.Admin+"/admin/truth/match", "application/json", bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var m contract.TruthMatch
	if err := json.NewDecoder(resp.Body).Decode(&m); err != nil {
		t.Fatal(err)
	}
	return m.Ranks[0].Blocks
}

// equalTiers compares the index with what the engine announced, block for block and by the sums that both
// keep; least are the blocks that each tier must have.
func (g *running) equalTiers(t *testing.T, w contract.ReadyWorker, least int) {
	t.Helper()
	g.caughtUp(t, []contract.ReadyWorker{w})
	report, err := oracle.Verify(context.Background(), g.ready.Gateway.Admin, []oracle.WorkerAdmin{{ID: w.ID, AdminURL: w.Admin}})
	if err != nil {
		t.Fatal(err)
	}
	if row := report.Workers[0]; !row.Equal || row.EngineBlocks < 20 || row.HostEngineBlocks < least {
		t.Errorf("%+v", row)
	}
	truth := truthOf(t, w)
	r := g.workers(t)[0].Ranks[0]
	mine := map[string]string{contract.TierDevice: fmt.Sprint(r.Blocks, r.Digest), contract.TierHost: fmt.Sprint(r.HostBlocks, r.HostDigest)}
	for _, s := range truth.Ranks[0].Sets {
		if theirs := fmt.Sprint(s.Announced, s.Digest); theirs != mine[s.Tier] {
			t.Errorf("%s: the engine announced %s, the gateway has %s", s.Tier, theirs, mine[s.Tier])
		}
	}
}
