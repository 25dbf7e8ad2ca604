package drills

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"fleetdrill/drills/judge"
	"fleetdrill/drills/scenario"
)

// TestSeriesStories tells what becomes of repeats. Commands:
//
//	series runs=3 base=7     a series of repeats
//	one seed=42 again=2      a single run with a given seed
//	next [n=2]               the seeds of the next runs to start
//	end pass [value=1.5] [seed=7]
//	                         a run has ended; the bound of its one rule is 2.5 s
//	result                   what the series came to, as a terminal shows it
func TestSeriesStories(t *testing.T) {
	datadriven.Walk(t, "testdata/series", func(t *testing.T, path string) {
		var s *Series
		var out []uint64 // seeds of runs that are out
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "series":
				var runs int
				var base uint64
				d.ScanArgs(t, "runs", &runs)
				d.ScanArgs(t, "base", &base)
				s, out = NewSeries(runs, base), nil
				return ""
			case "one":
				var seed uint64
				var again int
				d.ScanArgs(t, "seed", &seed)
				d.MaybeScanArgs(t, "again", &again)
				s, out = OneRun(seed, again), nil
				return ""
			case "next":
				n := 1
				d.MaybeScanArgs(t, "n", &n)
				var lines []string
				for range n {
					seed, ok := s.Next()
					if !ok {
						lines = append(lines, fmt.Sprintf("none (done: %v)", s.Done()))
						continue
					}
					out = append(out, seed)
					lines = append(lines, fmt.Sprint(seed))
				}
				return strings.Join(lines, "\n")
			case "end":
				seed := out[0]
				out = out[1:]
				s.Add(endedRun(t, d, seed))
				return fmt.Sprintf("done: %v", s.Done())
			case "result":
				return s.Result().Summary(func(seed uint64) string { return fmt.Sprintf("drill run x.yaml --seed %d", seed) })
			}
			d.Fatalf(t, "unknown command")
			return ""
		})
	})
}

// endedRun is a run with one rule.
func endedRun(t *testing.T, d *datadriven.TestData, seed uint64) judge.Drill {
	verdict := judge.Verdict(d.CmdArgs[0].Key)
	rule := judge.Result{ID: "out", Verdict: verdict, Unit: "s"}
	if d.HasArg("value") {
		var v float64
		d.ScanArgs(t, "value", &v)
		bound, margin := 2.5, 2.5-v
		rule.Value, rule.Bound, rule.Margin = &v, &bound, &margin
		rule.Sentence = fmt.Sprintf("It took %g s.", v)
	}
	r := judge.Drill{Name: "x", Verdict: verdict, Seed: seed, RunDir: "runs/x", Runs: 1, Expectations: []judge.Result{rule}}
	if verdict != judge.Pass {
		r.Reason = "because of " + string(verdict)
	}
	return r
}

func TestTierRuns(t *testing.T) {
	core := &scenario.Scenario{Tags: []string{"core"}}
	other := &scenario.Scenario{Repeat: scenario.Repeat{Runs: 5}}
	for _, c := range []struct {
		tier        string
		core, other int
	}{{TierSmoke, 1, 0}, {TierRelease, 20, 5}, {TierNightly, 73, 0}} {
		if a, b := TierRuns(c.tier, core), TierRuns(c.tier, other); a != c.core || b != c.other {
			t.Errorf("%s: core drill %d times and the other %d, want %d and %d", c.tier, a, b, c.core, c.other)
		}
	}
}

func TestProofNeedsAllThreeLegs(t *testing.T) {
	leg := func(v judge.Verdict) Repeated { return Repeated{Drill: judge.Drill{Name: "x", Verdict: v}} }
	for _, c := range []struct {
		asIs, control, noFault judge.Verdict
		want                   judge.Verdict
		problems               int
	}{
		{judge.Pass, judge.Fail, judge.Invalid, judge.Pass, 0},
		{judge.Fail, judge.Fail, judge.Invalid, judge.Fail, 1},
		{judge.Pass, judge.Pass, judge.Invalid, judge.Fail, 1},
		{judge.Pass, judge.Unknown, judge.Pass, judge.Fail, 2},
		{judge.Invalid, judge.Invalid, judge.Invalid, judge.Fail, 2}, // a busy machine proves nothing
		{judge.Pass, judge.Error, judge.Invalid, judge.Error, 1},
		{Interrupted, judge.Fail, judge.Invalid, judge.Error, 1},
	} {
		p := NewProof(leg(c.asIs), leg(c.control), leg(c.noFault), []string{"liveness-off"})
		if got := ProofVerdict([]Proof{p}); got != c.want || len(p.Problems()) != c.problems {
			t.Errorf("%s, %s, %s: %s with %d problems, want %s with %d", c.asIs, c.control, c.noFault, got, len(p.Problems()), c.want, c.problems)
		}
	}
	if got := ProofVerdict(nil); got != judge.Error {
		t.Errorf("nothing proven is %s, want error", got)
	}
}
