package publish

import (
	"time"

	"fleetdrill/internal/clock"
	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/faults"
)

// fullPause is how long late removals wait for room in a full queue, which only a fault keeps full.
const fullPause = 10 * time.Millisecond

// overdue queues the late removals whose time has come without a step. It returns when to look again, and
// false when only another step or a wake-up can make something due. It runs on the publisher goroutine.
func (p *Publisher) overdue() (next int64, ok bool) {
	if !p.encoding.TryLock() {
		return 0, false // a step publishes: it takes along what is due, and wakes us if more is held
	}
	defer p.encoding.Unlock()
	now := clock.MonoNs()
	l := p.setLateness(now)
	if next, ok = p.late.Next(); !ok || next > now {
		if l.Until > 0 {
			next = min(next, l.Until)
		}
		return next, ok
	}
	if p.queue.full() { // waiting here would be waiting for ourselves
		return now + int64(fullPause), true
	}
	if events := p.late.Due(now); len(events) > 0 {
		p.queue.tryPush(item{monoNs: now, payload: p.encode(events)})
		signal(p.queue.filled)
	}
	return p.late.Next()
}

// filter is what of a step's events goes out now. The caller holds encoding.
func (p *Publisher) filter(now int64, events []engine.Event) []engine.Event {
	l, before := p.setLateness(now), p.late.Taken()
	events = p.late.Filter(now, events)
	if n := p.late.Taken() - before; n > 0 && l.Faulty {
		p.o.Faults.HeldRemovals(now, p.o.Rank, p.seq.Load()+int64(p.queue.len()), n)
	}
	return events
}

// setLateness makes removals as late as they are to be now. When a fault has ended, everything it held is due.
func (p *Publisher) setLateness(now int64) faults.Lateness {
	l := p.o.Faults.Lateness(now, p.o.Rank, p.o.Late)
	p.late.Set(l.Options)
	return l
}

// dropLate forgets what is held: it was an incarnation's that ends.
func (p *Publisher) dropLate() {
	p.encoding.Lock()
	defer p.encoding.Unlock()
	p.late.Flush()
}
