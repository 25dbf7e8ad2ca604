package publish

import (
	"context"
	"sync"

	"fleetdrill/mockworker/ring"
)

// item is one encoded batch on its way to the publisher goroutine, collected at monoNs.
type item struct {
	monoNs  int64
	payload []byte
}

// queue stands between the step loop and the publisher goroutine. A full queue makes push wait: that is
// how a slow publisher stops a real engine's steps.
type queue struct {
	mu    sync.Mutex // guards items
	items *ring.Ring[item]
	// filled and freed hold at most one token each: "look again".
	filled, freed chan struct{}
}

func newQueue(max int) *queue {
	return &queue{items: ring.New[item](max), filled: make(chan struct{}, 1), freed: make(chan struct{}, 1)}
}

// push appends it, waiting while the queue is full, until ctx ends. There is one pusher at a time.
func (q *queue) push(ctx context.Context, it item) error {
	for {
		if q.tryPush(it) {
			signal(q.filled)
			return nil
		}
		select {
		case <-q.freed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (q *queue) tryPush(it item) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.items.Full() {
		return false
	}
	q.items.Push(it)
	return true
}

func (q *queue) full() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.items.Full()
}

func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.items.Len()
}

// peek is the oldest item, which stays.
func (q *queue) peek() (item, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.items.Len() == 0 {
		return item{}, false
	}
	return *q.items.At(0), true
}

// pop takes the item that peek showed: there is one popper.
func (q *queue) pop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.items.Pop()
	signal(q.freed)
}

// empty takes all items and returns how many there were.
func (q *queue) empty() (n int) {
	for _, ok := q.peek(); ok; _, ok = q.peek() {
		q.pop()
		n++
	}
	return n
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
