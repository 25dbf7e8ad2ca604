package publish

import (
	"time"

	"fleetdrill/internal/clock"
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
	if next, ok = p.late.Next(); !ok || next > now {
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

// dropLate forgets what is held: it was an incarnation's that ends.
func (p *Publisher) dropLate() {
	p.encoding.Lock()
	defer p.encoding.Unlock()
	p.late.Flush()
}
