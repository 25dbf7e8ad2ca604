package mockworker

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fleetdrill/internal/contract"
	"fleetdrill/internal/zsock"
	"fleetdrill/mockworker/engine"
)

// soak is how long TestSoak goes on: `go test -race -run TestSoak ./mockworker -args -soak 10m`.
var soak = flag.Duration("soak", 2*time.Second, "how long TestSoak goes on")

// soakFleets are the eight workers, three processes' worth, that soak side by side.
var soakFleets = []func(*Config){
	func(c *Config) { c.Count, c.Wire, c.HostBlocks, c.GRPCPort = 3, "vllm-0.25", 200, 0 },
	func(c *Config) { c.Count, c.Wire = 3, "sglang-map" },
	func(c *Config) {
		c.Count, c.Wire, c.KVCacheGroups, c.SchedulingPolicy = 2, "vllm-0.32", "swa:128,full", engine.PolicyPriority
	},
}

// TestSoak keeps eight workers busy with everything at once: requests of every kind, clients that hang up,
// nonsense, faults, and looks from the admin port. At the end nothing may be left over: no request counted
// as running, no success uncounted, no block in use, no goroutine (TestMain looks for those).
func TestSoak(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	var fleets []*soaking
	for i, change := range soakFleets {
		s := &soaking{seed: uint64(i)}
		s.f = start(t, func(c *Config) {
			c.NumGPUBlocksOverride, c.MaxModelLen, c.MaxNumSeqs = 400, 2000, 24
			change(c)
		})
		s.served = make([]soakCount, len(s.f.ready.Workers))
		s.begin(ctx, &all)
		fleets = append(fleets, s)
	}
	<-time.After(*soak)
	for _, s := range fleets { // on a busy machine it takes longer until there is something to compare
		s.f.eventually("every worker to have served and been heard", s.enough)
	}
	cancel()
	all.Wait()
	for _, s := range fleets {
		for _, err := range s.errs {
			t.Error(err)
		}
		for i := range s.f.ready.Workers {
			s.checkRest(t, i)
		}
	}
}

// soaking is one process's worth of workers and what was asked of them.
type soaking struct {
	f      *fleet
	seed   uint64
	served []soakCount // by worker

	mu   sync.Mutex // guards errs
	errs []error
}

// soakCount is what clients and the subscriber of one worker saw. Who hung up does not know how its request ended.
type soakCount struct{ whole, hungUp, messages atomic.Int64 }

// enough says that every worker was used, or that there is an error to be told.
func (s *soaking) enough() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.served {
		if c := &s.served[i]; len(s.errs) == 0 && (c.whole.Load() < clientsPerWorker || c.messages.Load() == 0) {
			return false
		}
	}
	return true
}

const clientsPerWorker = 6

func (s *soaking) begin(ctx context.Context, all *sync.WaitGroup) {
	for i := range s.f.ready.Workers {
		for n := range clientsPerWorker {
			all.Go(func() { s.client(ctx, i, rand.New(rand.NewPCG(s.seed, uint64(100*i+n)))) })
		}
		all.Go(func() { s.breaker(ctx, i, rand.New(rand.NewPCG(s.seed, uint64(1000+i)))) })
		all.Go(func() { s.looker(ctx, i) })
		all.Go(func() { s.subscriber(ctx, i) })
	}
}

// subscriber takes what is published, as a gateway would.
func (s *soaking) subscriber(ctx context.Context, worker int) {
	sub, err := zsock.DialSub(s.f.ready.Workers[worker].Ranks[0].Events, zsock.SubOptions{})
	if err != nil {
		s.fail("worker %d: subscribing: %v", worker, err)
		return
	}
	for {
		ev, err := sub.Recv(ctx)
		if err != nil {
			break // the soak is over
		}
		if ev.Kind == zsock.SubMessage {
			s.served[worker].messages.Add(1)
		}
	}
	if err := sub.Close(); err != nil {
		s.fail("worker %d: closing the subscriber: %v", worker, err)
	}
}

func (s *soaking) fail(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.errs) < 20 {
		s.errs = append(s.errs, fmt.Errorf(format, args...))
	}
}

// ask sends a request and reads the answer whole.
func (s *soaking) ask(ctx context.Context, method, url, body string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.f.client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// client sends one request after the other. Prompts share beginnings, so that there are hits, and together
// they are many pools long, so that there are evictions and preemptions.
func (s *soaking) client(ctx context.Context, worker int, rng *rand.Rand) {
	api := s.f.ready.Workers[worker].HTTP
	for ctx.Err() == nil {
		ids := append(prompt(rng.IntN(12), 16*(1+rng.IntN(12))), prompt(rng.IntN(1000), rng.IntN(60))...)
		body, _ := json.Marshal(map[string]any{"prompt": ids, "max_tokens": 1 + rng.IntN(80), "stream": rng.IntN(2) == 0})
		switch rng.IntN(10) {
		case 0:
			s.nonsense(worker, rng)
		case 1, 2:
			s.hangUp(worker, string(body), time.Duration(rng.IntN(30))*time.Millisecond)
		default:
			// The end of the soak does not cut it: it is to be counted.
			status, text, err := s.ask(context.Background(), "POST", api+"/v1/completions", string(body))
			if err != nil || status != http.StatusOK {
				s.fail("worker %d: completion answered %d %.200s, %v", worker, status, text, err)
				return
			}
			s.served[worker].whole.Add(1)
		}
	}
}

func (s *soaking) hangUp(worker int, body string, after time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), after)
	defer cancel()
	_, _, err := s.ask(ctx, "POST", s.f.ready.Workers[worker].HTTP+"/v1/completions", body)
	switch {
	case err == nil:
		s.served[worker].whole.Add(1)
	case errors.Is(err, context.DeadlineExceeded):
		s.served[worker].hungUp.Add(1)
	default:
		s.fail("worker %d: hanging up: %v", worker, err)
	}
}

// nonsense must be refused as the client's fault.
func (s *soaking) nonsense(worker int, rng *rand.Rand) {
	bodies := []string{`{"prompt":[1,2`, `{"prompt":[9999999],"max_tokens":1}`, `{"prompt":"x","max_tokens":-1}`, `{"prompt":{},"model":1}`, `[]`, ``, `{"prompt":"x","max_tokens":100000}`}
	status, text, err := s.ask(context.Background(), "POST", s.f.ready.Workers[worker].HTTP+"/v1/completions", bodies[rng.IntN(len(bodies))])
	if err != nil || status < 400 || status > 499 {
		s.fail("worker %d: nonsense answered %d %.200s, %v", worker, status, text, err)
	}
}

// soakFaults end by themselves, and none of them makes an answer fail.
var soakFaults = []string{
	`{"kind":"pause","for":"40ms"}`, `{"kind":"wedge","for":"40ms"}`, `{"kind":"drop_batches","count":3}`,
	`{"kind":"drop_batches","count":3,"replay":"lose"}`, `{"kind":"delay_publisher","by":"20ms","for":"60ms"}`,
	`{"kind":"mute_publisher","for":"30ms"}`, `{"kind":"restart_publisher"}`, `{"kind":"restart_publisher","socket":"rebind","ahead":50}`,
	`{"kind":"restart_publisher","cache":"empty"}`,
	`{"kind":"duplicate","count":3}`, `{"kind":"reorder","count":3}`, `{"kind":"corrupt","count":3}`, `{"kind":"truncate","count":3}`,
	`{"kind":"unknown_event","count":3}`, `{"kind":"unknown_field","count":3}`, `{"kind":"unknown_parent","count":3}`,
	`{"kind":"masked_store","count":3}`, `{"kind":"mute_removals","for":"50ms"}`, `{"kind":"stale_store","count":3}`, `{"kind":"mute_stores","tier":"device","for":"30ms"}`, `{"kind":"late_removals","by":"20ms","for":"80ms"}`,
	`{"kind":"late_removals","steps":5,"for":"80ms"}`, `{"kind":"silent_clear"}`, `{"kind":"clear"}`, `{"kind":"slow","factor":3,"jitter":0.5,"for":"80ms"}`,
	`{"kind":"replay_hang","for":"50ms"}`, `{"kind":"replay_empty","for":"50ms"}`, `{"kind":"replay_truncate","after":2,"for":"50ms"}`,
}

func (s *soaking) breaker(ctx context.Context, worker int, rng *rand.Rand) {
	admin := s.f.ready.Workers[worker].Admin
	for ctx.Err() == nil {
		status, text, err := s.ask(context.Background(), "POST", admin+"/admin/faults", soakFaults[rng.IntN(len(soakFaults))])
		if err != nil || (status >= 300 && status != http.StatusConflict) {
			s.fail("worker %d: fault answered %d %.200s, %v", worker, status, text, err)
			return
		}
		select {
		case <-time.After(time.Duration(20+rng.IntN(100)) * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func (s *soaking) looker(ctx context.Context, worker int) {
	w := s.f.ready.Workers[worker]
	for ctx.Err() == nil {
		for _, url := range []string{
			w.Admin + "/admin/truth", w.Admin + "/admin/truth/digests?rank=0", w.Admin + "/admin/truth/journal?rank=0",
			w.Admin + "/admin/truth/requests", w.Admin + "/admin/truth/blocks?rank=0&set=resident", w.Admin + "/admin/faults",
			w.HTTP + "/metrics", w.HTTP + "/health", w.HTTP + "/v1/models",
		} {
			if status, text, err := s.ask(context.Background(), "GET", url, ""); err != nil || status != http.StatusOK {
				s.fail("GET %s answered %d %.200s, %v", url, status, text, err)
			}
		}
	}
}

// checkRest waits until a worker is idle and compares its counters with what its clients saw.
func (s *soaking) checkRest(t *testing.T, worker int) {
	w := s.f.ready.Workers[worker]
	var truth contract.Truth
	s.f.eventually("worker "+w.ID+" to be idle", func() bool {
		_, text, err := s.ask(context.Background(), "GET", w.Admin+"/admin/truth", "")
		if err != nil || json.Unmarshal([]byte(text), &truth) != nil {
			t.Fatalf("truth: %v in %.200s", err, text)
		}
		r := truth.Ranks[0]
		return r.ResidentMonoNs >= truth.MonoNs && r.Running == 0 && r.Waiting == 0 && r.KVUsage == 0
	})
	rank, length, abort := truth.Ranks[0], truth.Counters["finished_length"], truth.Counters["finished_abort"]
	whole, hungUp := s.served[worker].whole.Load(), s.served[worker].hungUp.Load()
	if length < whole || length+abort > whole+hungUp {
		t.Errorf("worker %s: %d ended by length and %d by abort; %d were served whole, %d clients hung up", w.ID, length, abort, whole, hungUp)
	}
	if rank.ResidentBlocks-rank.Unannounced != rank.AnnouncedBlocks-rank.Ghost {
		t.Errorf("worker %s: what is both resident and announced differs: %+v", w.ID, rank)
	}
	t.Logf("%s, wire %s: %d served, %d hung up, of which %d aborted, %d preemptions, %d steps", w.ID, truth.Wire, whole, hungUp, abort, truth.Counters["preemptions"], rank.Steps)
}
