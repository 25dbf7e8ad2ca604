package truth

import (
	"sync"

	"fleetdrill/internal/contract"
	"fleetdrill/mockworker/ring"
)

// Requests is the log of a worker's finished requests, newest RequestRing of them. It is safe for
// concurrent use.
type Requests struct {
	mu   sync.Mutex // guards ring and next
	ring *ring.Ring[contract.TruthRequest]
	next int64
}

// NewRequests makes an empty log.
func NewRequests() *Requests {
	return &Requests{ring: ring.New[contract.TruthRequest](RequestRing)}
}

// Add appends r and numbers it: N counts from 0 in the order of ends.
func (q *Requests) Add(r contract.TruthRequest) {
	q.mu.Lock()
	defer q.mu.Unlock()
	r.N = q.next
	q.next++
	q.ring.Push(r)
}

// Page appends to dst[:0] up to cap(dst) requests from number from on, oldest first.
func (q *Requests) Page(from int64, dst []contract.TruthRequest) []contract.TruthRequest {
	q.mu.Lock()
	defer q.mu.Unlock()
	return page(q.ring, dst, func(r *contract.TruthRequest) bool { return r.N >= from })
}
