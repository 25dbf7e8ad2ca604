package drills

import (
	"errors"
	"fmt"
	"time"

	"fleetdrill/drills/judge"
	"fleetdrill/drills/record"
	"fleetdrill/drills/report"
)

// Interrupted is the verdict of a run that its user ended.
const Interrupted judge.Verdict = "interrupted"

// conclude judges what was observed and writes the run folder. It is called also when the lab failed or
// was interrupted: then the verdict says so, and what there is to see is in the folder all the same.
func (r *run) conclude(rec *record.Record, runErr error, began time.Time) (judge.Drill, error) {
	if runErr == nil {
		rec.Gates = append(rec.Gates, generatorGate(rec.Requests), samplerGate(rec.Samples))
		if r.indexMatters() {
			rec.Gates = append(rec.Gates, indexGate(rec))
		}
	}
	d := judge.Judge(r.s, rec, judge.Options{Strict: r.o.Strict})
	d.RunDir = r.folder.Dir
	if runErr != nil {
		d.Verdict, d.Passed, d.Wilson95Low = judge.Error, 0, 0
		if errors.Is(runErr, ErrInterrupted) {
			d.Verdict = Interrupted
		}
		d.Reason = runErr.Error()
	}
	if err := record.Write(r.folder.Dir, rec); err != nil {
		return d, err
	}
	err := report.Write(r.folder.Dir, report.Run{Drill: d, Scenario: r.s, Record: rec, Reproduce: r.o.Reproduce,
		Started: began.UTC().Format(time.RFC3339), Version: r.o.Version})
	if err != nil {
		return d, fmt.Errorf("writing the report: %w", err)
	}
	return d, nil
}

// cacheAware is the policy that places by the index.
const cacheAware = "cache_aware"

// indexMatters reports whether the gateway places by its index and the load repeats heads often enough
// that an index in use must show in the credit of its requests.
func (r *run) indexMatters() bool {
	if r.policy != cacheAware {
		return false
	}
	for _, l := range r.s.Loads {
		if l.To == "gateway" && l.Synth.Heads > 0 && l.Synth.NewPrefix <= 1-2*minCredited {
			return true
		}
	}
	return false
}
