package loop

import (
	"fleetdrill/internal/clock"
	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/faults"
)

// Report is the snapshot as the worker's faces tell it: metrics, load endpoints, load streams. It is the
// truth unless a stale_load fault lies about the gauges; counters go on.
func (l *Loop) Report() Snapshot {
	s, known := l.Snapshot(), false
	s.Load, known = l.lie.See(l.o.Faults, clock.MonoNs(), s.Load)
	s.LoadAbsent = !known
	return s
}

// lens is how the loop's load is told.
type lens = faults.Lens[engine.Load]
