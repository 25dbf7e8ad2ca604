package sim

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"

	"fleetdrill/gateway/policy"
	"fleetdrill/internal/contract"
	"fleetdrill/internal/leaks"
	"fleetdrill/mockworker/engine"
	"fleetdrill/replayer/plan"
	"fleetdrill/replayer/result"
	"fleetdrill/replayer/trace"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// readPlan plans rows of the built-in trace.
func readPlan(t testing.TB, rows string, o plan.Options) *plan.Plan {
	t.Helper()
	sel, err := trace.ParseRows(rows)
	if err != nil {
		t.Fatal(err)
	}
	r, err := trace.Default(trace.Options{Rows: sel})
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Read(r, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// small is a run of the trace's first 150 rows at triple speed on four workers.
func small(t testing.TB) Config {
	t.Helper()
	profile, err := engine.LoadProfile("fast")
	if err != nil {
		t.Fatal(err)
	}
	return Config{
		Plan: readPlan(t, "0-149", plan.Options{Speed: 3, Seed: 1}), Workers: 4, Policy: policy.CacheAware,
		Profile: profile, Seed: 1, Retries: 2,
	}
}

func run(t testing.TB, c Config) (Result, result.Summary) {
	t.Helper()
	r, err := Run(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r, result.Summarize(result.Info{
		Trace: c.Plan.Trace, Rows: c.Plan.Rows, Mode: result.Sim, Policy: c.Policy, Workers: c.Workers, WorkerIDs: r.WorkerIDs,
		Speed: 3, Arrivals: plan.Spread, Seed: c.Seed, SLO: result.DefaultSLO(), Profile: c.Profile.Name,
		KVBlocks: r.KVBlocks, BlockSize: r.BlockSize, Hash: r.Hash, Preemptions: int(r.Preemptions),
	}, r.Requests)
}

func digest(t testing.TB, c Config) string {
	t.Helper()
	_, s := run(t, c)
	return s.Digest
}

// One seed gives one result, to the byte, whatever runs beside it; another seed gives another.
func TestOneSeedOneResult(t *testing.T) {
	c := small(t)
	want := digest(t, c)
	for procs := 1; procs <= 3; procs++ {
		before := runtime.GOMAXPROCS(procs)
		got := digest(t, c)
		runtime.GOMAXPROCS(before)
		if got != want {
			t.Errorf("GOMAXPROCS %d: digest %s, want %s", procs, got, want)
		}
	}
	other := c
	other.Seed = 2
	if digest(t, other) == want {
		t.Error("another seed gives the same result")
	}
}

// What stands in for the wire is what comes through it.
func TestTheWireChangesNothing(t *testing.T) {
	c := small(t)
	want := digest(t, c)
	if c.Wire = true; digest(t, c) != want {
		t.Error("batches through encoder and decoder give another result")
	}
}

// An engine's own hash gives the figures of the hash that stands in for it.
func TestTheHashChangesNothing(t *testing.T) {
	c := small(t)
	want := digest(t, c)
	if c.Hash = "sha256_cbor"; digest(t, c) != want {
		t.Error("SHA-256 gives another result")
	}
}

// Every row ends once, and no figure of it can be more than it may be.
func TestConservation(t *testing.T) {
	for _, name := range policy.Names {
		c := small(t)
		c.Policy = name
		r, s := run(t, c)
		if s.OK != len(c.Plan.Requests) || len(r.Requests) != s.OK {
			t.Fatalf("%s: %d of %d requests ok: %v", name, s.OK, len(c.Plan.Requests), s.ByError)
		}
		if k := s.Credit; k.Equal+k.WithinBlock+k.Over+k.Under != s.Requests {
			t.Errorf("%s: credit %+v of %d requests", name, k, s.Requests)
		}
		late := 0
		for i := range r.Requests {
			q := &r.Requests[i]
			checkRequest(t, name, c, q)
			if q.Cached > q.Best {
				late++
			}
		}
		// More than the best holder had is only there when somebody computed it while the request waited.
		if late > s.Requests/50 {
			t.Errorf("%s: %d of %d requests found more than any worker had", name, late, s.Requests)
		}
		if n := slices.IndexFunc(r.Ranks, func(k contract.RoutingRank) bool {
			return k.Quality != contract.QualityExact || k.Stream != contract.StreamLive
		}); n >= 0 {
			t.Errorf("%s: rank of worker %d ends as %+v", name, n, r.Ranks[n])
		}
	}
}

func checkRequest(t *testing.T, name string, c Config, r *result.Request) {
	t.Helper()
	bad := func(what string) { t.Errorf("%s: %s: %+v", name, what, *r) }
	switch q := c.Plan.Requests[r.N]; {
	case r.ID != q.ID || r.PromptTokens != q.PromptTokens || r.ScheduledNs != q.OffsetNs:
		bad("another request's record")
	case r.OutputTokens != q.MaxTokens || len(r.GapsNs) != q.MaxTokens-1:
		bad("tokens are missing")
	case r.Cached >= r.PromptTokens || r.Predicted >= r.PromptTokens:
		bad("more cached than can be")
	case r.Held > r.Best || r.Best > r.Unbounded || r.Pooled > r.Unbounded:
		bad("a holder has more than there is")
	case r.PlacedNs != 0 || r.EngineNs < int64(DefaultLinkDelay) || r.TTFTNs < r.EngineNs+int64(DefaultLinkDelay) || r.E2ENs < r.TTFTNs:
		bad("times run backwards")
	}
}

// In a clean run nobody is vetoed, however busy: four workers with three times the trace's load queue.
func TestACleanRunVetoesNobody(t *testing.T) {
	c := small(t)
	for _, push := range []bool{false, true} {
		c.LoadPush = push
		r, _ := run(t, c)
		for _, e := range r.Transitions {
			if e.Kind == contract.EventVeto || e.Kind == contract.EventBreaker {
				t.Errorf("%+v", e)
			}
		}
	}
}

// With a pool that never evicts, placement alone decides what is reused: the figures are those that the
// trace's own statistics give without any engine, but for the turns that overlap in time.
func TestReuseIsWhatTheTraceAllows(t *testing.T) {
	c := small(t)
	c.Plan, c.NumBlocks, c.Workers = readPlan(t, "0-299", plan.Options{Seed: 1}), 300_000, 8
	stat := measure(t, "0-299")
	c.Policy = policy.RoundRobin
	_, turns := run(t, c)
	if d := turns.Reuse - stat.RoundRobin8; d < -0.005 || d > 0.005 {
		t.Errorf("round robin reused %.4f, the trace allows %.4f", turns.Reuse, stat.RoundRobin8)
	}
	c.Policy = policy.CacheAware
	_, aware := run(t, c)
	if d := stat.TokenReuse - aware.Reuse; d < 0 || d > 0.01 {
		t.Errorf("cache_aware reused %.4f, the trace allows %.4f", aware.Reuse, stat.TokenReuse)
	}
	if *aware.HitOverBest < 0.98 || *turns.HitOverBest > 0.7 {
		t.Errorf("hit over best holder %.3f with cache_aware, %.3f with round robin", *aware.HitOverBest, *turns.HitOverBest)
	}
}

func measure(t *testing.T, rows string) trace.Stat {
	t.Helper()
	sel, err := trace.ParseRows(rows)
	if err != nil {
		t.Fatal(err)
	}
	r, err := trace.Default(trace.Options{Rows: sel})
	if err != nil {
		t.Fatal(err)
	}
	s, err := trace.Measure(r)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A request that an engine refuses is a record with its reason.
func TestRefusedRequestsFail(t *testing.T) {
	c := small(t)
	c.MaxModelLen = 20_000
	r, s := run(t, c)
	if s.OK == 0 || s.Errors == 0 || s.OK+s.Errors != len(c.Plan.Requests) {
		t.Fatalf("%d ok, %d errors of %d", s.OK, s.Errors, len(c.Plan.Requests))
	}
	for i := range r.Requests {
		q := &r.Requests[i]
		if long := q.PromptTokens+q.MaxTokens > c.MaxModelLen; long != (q.Outcome == result.Failed) || long != strings.Contains(q.Error, "longer than the model's context") {
			t.Errorf("%+v", *q)
		}
	}
}

// Passes of 100 seconds are a standstill to the gateway: requests without a token are moved, to nobody's
// help, and every one of them still ends once, the same way each time.
func TestWedgedRequestsMoveAndEnd(t *testing.T) {
	c := small(t)
	c.Plan = readPlan(t, "0-39", plan.Options{Speed: 3, Seed: 1, MaxOutput: 2})
	c.Profile.StepNs.Value = 100e9
	r, s := run(t, c)
	if s.OK+s.Errors != len(c.Plan.Requests) || s.Errors == 0 || r.Counters.Retries == 0 {
		t.Fatalf("%d ok, %d errors of %d, %d retries", s.OK, s.Errors, len(c.Plan.Requests), r.Counters.Retries)
	}
	if !slices.ContainsFunc(r.Transitions, func(e contract.RoutingEvent) bool { return e.To == contract.VetoWedged }) {
		t.Error("nobody was wedged")
	}
	if again := digest(t, c); again != s.Digest {
		t.Error("another run went another way")
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	c := small(t)
	ctx, cancel := context.WithCancel(context.Background())
	calls := 0
	c.Progress = func(int, int64) {
		if calls++; calls == 5 {
			cancel()
		}
	}
	if _, err := Run(ctx, c); !errors.Is(err, context.Canceled) || calls != 5 {
		t.Fatalf("%v after %d calls", err, calls)
	}
}

func TestWrongConfigurations(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"needs requests":       func(c *Config) { c.Plan = nil },
		"workers 0":            func(c *Config) { c.Workers = 0 },
		`policy "x"`:           func(c *Config) { c.Policy = "x" },
		`kv index "x"`:         func(c *Config) { c.KVIndex = "x" },
		`load report "x"`:      func(c *Config) { c.LoadReport = "x" },
		"must not be negative": func(c *Config) { c.EventDelay = -1 },
		`algorithm "x"`:        func(c *Config) { c.Hash = "x" },
		"number of blocks":     func(c *Config) { c.NumBlocks = 1 },
	} {
		c := small(t)
		change(&c)
		if _, err := Run(context.Background(), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Simulated against wall time, for the whole built-in trace on eight workers:
//
//	go test -run '^$' -bench Run -benchtime 3x ./replayer/sim
func BenchmarkRun(b *testing.B) {
	c := small(b)
	c.Plan, c.Workers = readPlan(b, "", plan.Options{Seed: 1}), 8
	virtual := int64(0)
	for b.Loop() {
		r, err := Run(context.Background(), c)
		if err != nil {
			b.Fatal(err)
		}
		virtual += r.VirtualNs
	}
	b.ReportMetric(float64(virtual)/float64(b.Elapsed()), "x")
}
