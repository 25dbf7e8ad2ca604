package zsock

import "time"

// backoff is the delay before the next of a row of attempts: min at first, doubling, at most max.
type backoff struct {
	min, max time.Duration
	delay    time.Duration // the one handed out last; 0 = none yet
}

func (b *backoff) next() time.Duration {
	b.delay = min(max(2*b.delay, b.min), b.max)
	return b.delay
}

func (b *backoff) reset() { b.delay = 0 }

// lived tells how long the attempt stayed connected. Only a connection that outlived the longest delay
// starts the row anew: behind a proxy that accepts and then closes, every attempt succeeds for a moment.
func (b *backoff) lived(d time.Duration) {
	if d > b.max {
		b.reset()
	}
}
