package published

import (
	"context"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"fleetdrill/gateway/policy"
	"fleetdrill/internal/leaks"
	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/fit"
	"fleetdrill/replayer/plan"
	"fleetdrill/replayer/trace"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func readPlan(t *testing.T, rows string, speed float64) *plan.Plan {
	t.Helper()
	sel, err := trace.ParseRows(rows)
	if err != nil {
		t.Fatal(err)
	}
	r, err := trace.Default(trace.Options{Rows: sel})
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Read(r, Plan(0, speed))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A plan is asked at the rate that was wanted.
func TestSpeed(t *testing.T) {
	p := readPlan(t, "0-99", 1)
	fast := readPlan(t, "0-99", Speed(p, 20))
	if got := float64(len(fast.Requests)) / float64(fast.WindowNs()) * 1e9; math.Abs(got/20-1) > 1e-6 {
		t.Errorf("%.3f requests a second, want 20", got)
	}
}

// The table has every published row, the small pool's twice, and counts what is close.
func TestCompare(t *testing.T) {
	prof, err := engine.LoadProfile("qwen3-8b-published-curve")
	if err != nil {
		t.Fatal(err)
	}
	c, err := Compare(context.Background(), readPlan(t, "0-59", 2), prof, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if c.Of != 24 || len(c.Rows) != 6 {
		t.Fatalf("%d figures in %d rows, want 24 in 6", c.Of, len(c.Rows))
	}
	for _, r := range c.Rows {
		if slices.Min(sliceOf(r.Model)) <= 0 || r.Model.Within > 1 || r.Model.P50 > r.Model.P99 {
			t.Errorf("%s %s: %+v", r.Pool, r.Policy, r.Model)
		}
	}
	text := Text([]Candidate{c})
	for _, want := range []string{"/ 15.31", "1 s late", "of 24 figures"} {
		if !strings.Contains(text, want) {
			t.Errorf("the table does not say %q:\n%s", want, text)
		}
	}
	exact := Candidate{Rows: []Row{{Scenario: scenarios[0], Model: scenarios[0].Hardware}, {Scenario: scenarios[2], Model: scenarios[2].Hardware}}}
	if exact.count(); exact.Within15 != 6 || exact.Of != 6 {
		t.Errorf("%d of %d within 15 %%: a small pool without late removals does not count", exact.Within15, exact.Of)
	}
}

func sliceOf(f Figures) []float64 { l := f.list(); return l[:] }

// A search that may try little still ends with a profile that can be loaded, and with its context.
func TestFit(t *testing.T) {
	p := readPlan(t, "0-29", 2)
	calls := 0
	c, err := Fit(context.Background(), p, 10, func(int, float64) { calls++ })
	if err != nil {
		t.Fatal(err)
	}
	if calls < 10 || calls > 16 {
		t.Errorf("%d trials of about 10", calls)
	}
	if c.A <= 0 || c.Overhead <= 0 {
		t.Errorf("%+v", c)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Fit(ctx, p, 10, nil); err == nil {
		t.Error("a search goes on without its context")
	}
}

func TestYAML(t *testing.T) {
	path := t.TempDir() + "/p.yaml"
	c := fit.Coefficients{A: 1e6, B: 2, C: 3, D: 4.5, E: 0.01, Overhead: 7}
	if err := os.WriteFile(path, YAML("p", c), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := engine.LoadProfile(path)
	if err != nil {
		t.Fatal(err)
	}
	if p.Timing() != Profile(c).Timing() {
		t.Errorf("%+v, want %+v", p.Timing(), Profile(c).Timing())
	}
}

// Policies of the published rows are ours.
func TestPolicies(t *testing.T) {
	for _, s := range scenarios {
		if !slices.Contains(policy.Names, s.Policy) {
			t.Errorf("policy %q", s.Policy)
		}
	}
}
