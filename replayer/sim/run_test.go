package sim

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"fleetdrill/gateway/policy"
	"fleetdrill/mockworker/engine"
	"fleetdrill/replayer/plan"
	"fleetdrill/replayer/result"
	"fleetdrill/replayer/trace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
		WorkerIDs: r.WorkerIDs, BlockSize: r.BlockSize, SLO: result.DefaultSLO(), Policy: c.Policy, Workers: c.Workers,
	}, r.Requests)
}

func TestEveryRequestEndsOnce(t *testing.T) {
	c := small(t)
	r, s := run(t, c)
	if s.OK != len(c.Plan.Requests) || len(r.Requests) != s.OK {
		t.Fatalf("%d of %d requests ok: %v", s.OK, len(c.Plan.Requests), s.ByError)
	}
}
