package lanes

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

// Pool is a number of lanes. Its methods are safe for concurrent use, and those of a nil Pool do not limit
// or count anything.
type Pool struct {
	size int
	// free hands lanes out in the order of asking, so that no rank starves.
	free *semaphore.Weighted

	turns, waits, waitNs, busyNs atomic.Int64
	waiting, maxWaiting          atomic.Int64
}

// New makes a pool of n lanes, at least one.
func New(n int) *Pool {
	n = max(n, 1)
	return &Pool{size: n, free: semaphore.NewWeighted(int64(n))}
}

// Turn runs apply on a lane as soon as one is free. It returns false, and does not run it, when ctx ends first.
// Calls of one rank must come from one goroutine: that keeps them in order. Apply must not take a turn.
func (p *Pool) Turn(ctx context.Context, apply func()) bool {
	if p == nil {
		apply()
		return true
	}
	if !p.take(ctx) {
		return false
	}
	start := time.Now()
	defer func() {
		p.busyNs.Add(int64(time.Since(start)))
		p.turns.Add(1)
		p.free.Release(1)
	}()
	apply()
	return true
}

func (p *Pool) take(ctx context.Context) bool {
	if p.free.TryAcquire(1) {
		return true
	}
	start := time.Now()
	n := p.waiting.Add(1)
	for most := p.maxWaiting.Load(); n > most && !p.maxWaiting.CompareAndSwap(most, n); most = p.maxWaiting.Load() {
	}
	err := p.free.Acquire(ctx, 1)
	p.waiting.Add(-1)
	p.waits.Add(1)
	p.waitNs.Add(int64(time.Since(start)))
	return err == nil
}

// Stats counts what a pool did.
type Stats struct {
	Lanes int
	// Turns were taken; Waits of them, or of those given up, found no lane free, and waited Wait in all.
	Turns, Waits int64
	Wait, Busy   time.Duration
	// Waiting ranks now, and the most ever: the depth of the back-pressure.
	Waiting, MaxWaiting int64
}

// Stats is a snapshot.
func (p *Pool) Stats() Stats {
	if p == nil {
		return Stats{}
	}
	return Stats{Lanes: p.size, Turns: p.turns.Load(), Waits: p.waits.Load(),
		Wait: time.Duration(p.waitNs.Load()), Busy: time.Duration(p.busyNs.Load()),
		Waiting: p.waiting.Load(), MaxWaiting: p.maxWaiting.Load()}
}
