package live

import (
	"time"

	"fleetdrill/replayer/load"
)

// meter adds up the records of a running load.
type meter struct {
	planned int
	next    int // of load.Run.Since
	last    time.Duration

	ended, errors  int
	cached, prompt int64
	ttft           load.Histogram
}

func newMeter(planned int) *meter { return &meter{planned: planned, ttft: load.NewHistogram()} }

// read takes what settled since it was asked last, elapsed after the start.
func (m *meter) read(changed []load.Record, next int, elapsed time.Duration) Progress {
	settled := next - m.next
	for i := range changed[:settled] {
		m.add(&changed[i])
	}
	p := Progress{Planned: m.planned, Sent: next + len(changed) - settled, Ended: m.ended, Errors: m.errors, Elapsed: elapsed,
		TTFTP50Ms: m.ttft.Quantiles().P50}
	if m.prompt > 0 {
		p.Hit = float64(m.cached) / float64(m.prompt)
	}
	if d := elapsed - m.last; d > 0 {
		p.Rate = float64(settled) / d.Seconds()
	}
	m.next, m.last = next, elapsed
	return p
}

func (m *meter) add(r *load.Record) {
	m.ended++
	if r.Outcome != load.OutcomeOK {
		m.errors++
		return
	}
	m.cached += int64(r.Cached)
	m.prompt += int64(r.PromptTokens)
	m.ttft.Add(r.FirstNs - r.ScheduledNs)
}
