package compare

import (
	"fmt"
	"slices"

	"fleetdrill/drills/judge"
	"fleetdrill/drills/report"
	"fleetdrill/drills/scenario"
)

// Rejudge judges a stored run by the expectations of a scenario, its own or an edited one. The scenario
// must be of the run's drill and fleet: over another fleet the same words would mean something else.
//
// A run that ended in an error or was interrupted stays so, whatever its expectations say now: it was never
// finished, and what it did observe proves nothing.
func Rejudge(r report.Run, s *scenario.Scenario, o judge.Options) (judge.Drill, error) {
	if s.Name != r.Record.Drill {
		return judge.Drill{}, fmt.Errorf("%s is the drill %s, the run was %s", s.Path, s.Name, r.Record.Drill)
	}
	if ids := s.WorkerIDs(); !slices.Equal(ids, r.Record.Workers) {
		return judge.Drill{}, fmt.Errorf("%s has %d workers, the run had %d", s.Path, len(ids), len(r.Record.Workers))
	}
	d := judge.Judge(s, r.Record, o)
	d.RunDir = r.Drill.RunDir
	if !slices.Contains([]judge.Verdict{judge.Pass, judge.Fail, judge.Unknown, judge.Invalid}, r.Drill.Verdict) {
		d.Verdict, d.Reason, d.Passed, d.Wilson95Low = r.Drill.Verdict, r.Drill.Reason, 0, 0
	}
	return d, nil
}
