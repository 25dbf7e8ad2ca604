package loop

import (
	"fleetdrill/internal/clock"
	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/faults"
)

// Report is the snapshot as the worker's faces tell it: metrics, load endpoints, load streams. It is the
// truth unless a stale_load fault lies about the gauges; counters go on. known is false when the worker is
// to say nothing about its load.
func (l *Loop) Report() (s Snapshot, known bool) {
	s = l.Snapshot()
	s.Load, known = l.lie.See(l.o.Faults, clock.MonoNs(), s.Load)
	return s, known
}

// lens is how the loop's load is told.
type lens = faults.Lens[engine.Load]
