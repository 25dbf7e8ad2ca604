package drills

import (
	"fmt"
	"slices"

	"fleetdrill/drills/judge"
	"fleetdrill/drills/scenario"
	"fleetdrill/internal/rng"
)

// maxInvalidShare is the share of a series' runs that may be invalid before the series says more about
// the machine than about the gateway. One invalid run is always forgiven, or a series of two could not
// have any.
const maxInvalidShare = 0.1

// Series is the repeats of one drill: a pure state machine that hands out seeds and takes in results.
// It is not safe for concurrent use.
//
// An invalid run proved nothing: it is counted apart and another one takes its place. A failed run is
// never run again.
type Series struct {
	want  int
	base  uint64
	fixed bool // one run with the base itself as its seed
	// maxInvalid is how many invalid runs end the series.
	maxInvalid int

	issued, running int
	results         []judge.Drill
	valid           int
	invalid         int
	over            bool
}

// NewSeries is a series of n runs with the seeds that follow from base. A single run is what it is,
// invalid or not.
func NewSeries(n int, base uint64) *Series {
	s := &Series{want: n, base: base}
	if n > 1 {
		// The largest k for which k of n+k is within the share, but at least one.
		s.maxInvalid = max(1, int(maxInvalidShare*float64(n)/(1-maxInvalidShare)))
	}
	return s
}

// OneRun is a series of a single run with a given seed; up to again invalid ones are replaced, with the
// seeds that follow from it.
func OneRun(seed uint64, again int) *Series {
	return &Series{want: 1, base: seed, fixed: true, maxInvalid: again}
}

// Many reports whether the series may have more than one run.
func (s *Series) Many() bool { return s.want > 1 || s.maxInvalid > 0 }

// Next is the seed of the next run to start; false when nothing is to be started now.
func (s *Series) Next() (seed uint64, ok bool) {
	if s.over || s.valid+s.running >= s.want {
		return 0, false
	}
	i := s.issued
	s.issued++
	s.running++
	if s.fixed && i == 0 {
		return s.base, true
	}
	return rng.RunSeed(s.base, i), true
}

// Add takes in the result of a run that Next gave the seed of.
func (s *Series) Add(d judge.Drill) {
	s.running--
	s.results = append(s.results, d)
	switch d.Verdict {
	case judge.Invalid:
		s.invalid++
		s.over = s.over || s.invalid > s.maxInvalid
	case judge.Error, Interrupted:
		s.over = true
	default:
		s.valid++
	}
}

// Done reports whether no run is out and none is to come.
func (s *Series) Done() bool {
	return s.running == 0 && (s.over || s.valid >= s.want)
}

// Repeated is the result of a series: an entry of `drill run --json`. The embedded drill is the run that
// shows the verdict best (a failed one when any failed), with Runs, Passed and Wilson95Low of all valid
// runs.
type Repeated struct {
	judge.Drill
	// Invalid counts the runs that proved nothing; they are not in Runs.
	Invalid int `json:"invalid_runs"`
	// Flaky says that some runs passed and some failed.
	Flaky bool `json:"flaky"`
	// Wilson95High is the upper end of the interval.
	Wilson95High float64 `json:"wilson95_high"`
	// Rules are the expectations over all valid runs.
	Rules []RuleStats `json:"rules"`
}

// Result folds the runs so far.
func (s *Series) Result() Repeated {
	var valid []judge.Drill
	for _, d := range s.results {
		if d.Verdict != judge.Invalid && d.Verdict != judge.Error && d.Verdict != Interrupted {
			valid = append(valid, d)
		}
	}
	r := Repeated{Drill: worstRun(s.results), Invalid: s.invalid}
	r.Runs, r.Passed = len(valid), 0
	failed := false
	for _, d := range valid {
		if d.Verdict == judge.Pass {
			r.Passed++
		}
		failed = failed || d.Verdict == judge.Fail
	}
	r.Flaky = failed && r.Passed > 0
	r.Wilson95Low, r.Wilson95High = judge.Wilson95Low(r.Passed, r.Runs), 1-judge.Wilson95Low(r.Runs-r.Passed, r.Runs)
	if s.want > 1 && s.invalid > s.maxInvalid {
		r.Verdict = judge.Error
		r.Reason = fmt.Sprintf("harness problem: %d of %d runs were invalid, more than %.0f %%; the last: %s",
			s.invalid, len(s.results), 100*maxInvalidShare, lastReason(s.results, judge.Invalid))
	} else if s.invalid > 0 && len(valid) > 0 && r.Verdict == judge.Invalid {
		// The invalid runs were replaced and do not decide.
		r.Drill = withCounts(worstRun(valid), r.Drill)
	}
	r.Rules = ruleStats(valid)
	return r
}

// withCounts keeps the counts of a folded result on another run.
func withCounts(d, counts judge.Drill) judge.Drill {
	d.Runs, d.Passed, d.Wilson95Low = counts.Runs, counts.Passed, counts.Wilson95Low
	return d
}

// worstRun is the run with the worst verdict, and among those the one with the least margin.
func worstRun(runs []judge.Drill) judge.Drill {
	if len(runs) == 0 {
		return judge.Drill{Verdict: judge.Error, Reason: "no run came to an end"}
	}
	worst := runs[0]
	for _, d := range runs[1:] {
		both := judge.Worst(worst.Verdict, d.Verdict)
		switch {
		case d.Verdict != worst.Verdict && both == d.Verdict:
			worst = d
		case d.Verdict == worst.Verdict && leastMargin(d) < leastMargin(worst):
			worst = d
		}
	}
	return worst
}

func lastReason(runs []judge.Drill, v judge.Verdict) string {
	for _, d := range slices.Backward(runs) {
		if d.Verdict == v {
			return d.Reason
		}
	}
	return ""
}

// Tiers of a release process: how often which drills run.
const (
	TierSmoke   = "smoke"   // every core drill once
	TierRelease = "release" // every drill as often as its file says, 20 times in the matrix
	TierNightly = "nightly" // every core drill 73 times: 73 of 73 means at least 95 %
)

// Tiers is the closed list.
var Tiers = []string{TierSmoke, TierRelease, TierNightly}

const (
	coreTag     = "core"
	nightlyRuns = 73
	releaseRuns = 20 // of a file that says nothing
)

// TierRuns is how often a tier runs a scenario, 0 when it leaves it out.
func TierRuns(tier string, s *scenario.Scenario) int {
	core := slices.Contains(s.Tags, coreTag)
	switch {
	case tier == TierRelease:
		return OwnRuns(s)
	case tier == TierSmoke && core:
		return 1
	case tier == TierNightly && core:
		return nightlyRuns
	}
	return 0
}

// OwnRuns is how often a scenario's file says that it is repeated.
func OwnRuns(s *scenario.Scenario) int {
	if s.Repeat.Runs > 0 {
		return s.Repeat.Runs
	}
	return releaseRuns
}
