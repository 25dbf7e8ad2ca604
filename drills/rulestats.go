package drills

import (
	"math"
	"slices"

	"fleetdrill/drills/judge"
)

// RuleStats are one expectation over the valid runs of a series. Min, Median and Max are of the runs
// that measured a value, in Unit; nil when none did.
type RuleStats struct {
	ID string `json:"id"`
	// Runs are those that decided the rule: a run in which it was skipped is not counted.
	Runs         int     `json:"runs"`
	Passed       int     `json:"passed"`
	Wilson95Low  float64 `json:"wilson95_low"`
	Wilson95High float64 `json:"wilson95_high"`
	Unit         string  `json:"unit"`
	// Bound is nil also when it was not the same in every run.
	Bound  *float64 `json:"bound"`
	Min    *float64 `json:"min"`
	Median *float64 `json:"median"`
	Max    *float64 `json:"max"`
	// WorstSeed is the seed of the run that did not pass, or else of the one with the least margin.
	WorstSeed uint64 `json:"worst_seed"`
	// Worst is that run's sentence.
	Worst string `json:"worst"`
}

// ruleStats folds the expectations of runs of one drill, in the drill's order.
func ruleStats(runs []judge.Drill) []RuleStats {
	out := []RuleStats{}
	if len(runs) == 0 {
		return out
	}
	for i, x := range runs[0].Expectations {
		s := RuleStats{ID: x.ID, Unit: x.Unit, Bound: x.Bound}
		var values []float64
		worst := math.Inf(1)
		for _, d := range runs {
			r := d.Expectations[i]
			if r.Verdict == judge.Skipped {
				continue
			}
			s.Runs++
			if r.Verdict == judge.Pass {
				s.Passed++
			}
			if r.Value != nil {
				values = append(values, *r.Value)
			}
			if s.Bound != nil && (r.Bound == nil || *r.Bound != *s.Bound) {
				s.Bound = nil // each run had its own
			}
			if w := ruleRank(r); s.Worst == "" || w < worst {
				worst, s.WorstSeed, s.Worst = w, d.Seed, r.Sentence
			}
		}
		s.Wilson95Low, s.Wilson95High = judge.Wilson95Low(s.Passed, s.Runs), 1-judge.Wilson95Low(s.Runs-s.Passed, s.Runs)
		s.Min, s.Median, s.Max = spread(values)
		out = append(out, s)
	}
	return out
}

// failedRank is below every margin of a rule that passed.
const failedRank = -1e12

// ruleRank orders results from bad to good: those that did not pass first, then by margin. A result
// without a margin comes last among its kind.
func ruleRank(r judge.Result) float64 {
	margin := 1e9
	if r.Margin != nil {
		margin = *r.Margin
	}
	if r.Verdict != judge.Pass {
		return failedRank + margin
	}
	return margin
}

// leastMargin is the rank of a run's worst rule.
func leastMargin(d judge.Drill) float64 {
	least := math.Inf(1)
	for _, r := range d.Expectations {
		if r.Verdict != judge.Skipped {
			least = min(least, ruleRank(r))
		}
	}
	return least
}

// spread is the minimum, the median (of an even number the mean of the middle two) and the maximum.
func spread(values []float64) (lowest, median, highest *float64) {
	n := len(values)
	if n == 0 {
		return nil, nil, nil
	}
	v := slices.Sorted(slices.Values(values))
	m := (v[(n-1)/2] + v[n/2]) / 2
	return &v[0], &m, &v[n-1]
}
