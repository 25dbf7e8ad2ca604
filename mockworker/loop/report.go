package loop

import (
	"time"

	"fleetdrill/internal/clock"
	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/faults"
)

// Report is the snapshot as the worker's faces tell it: metrics, load endpoints, load streams. It is the
// truth unless a stale_load fault lies about the gauges; counters go on.
func (l *Loop) Report() Snapshot {
	s := l.Snapshot()
	now := clock.MonoNs()
	t, known := l.lie.See(l.o.Faults, now, told{s.Load, s.throughput(now)})
	s.Load, s.Throughput = t.Load, t.throughput
	s.LoadAbsent = !known
	return s
}

// lens is how the loop's load is told.
type lens = faults.Lens[told]

// told is what of the load is told, or lied about.
type told struct {
	engine.Load
	throughput float64
}

// idleReports is how long an SGLang scheduler that idles tells its last throughput: only then does it look at
// itself again.
const idleReports = 30 * time.Second

// throughput is the generation rate as SGLang tells it at nowNs: that of the last passes, until it has been idle for
// half a minute.
func (s *Snapshot) throughput(nowNs int64) float64 {
	if s.Running == 0 && nowNs-s.LastStepMonoNs > int64(idleReports) {
		return 0
	}
	return s.GenRate
}
