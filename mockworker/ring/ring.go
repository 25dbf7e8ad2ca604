// Package ring holds the one bounded queue of a mock worker: journal, digests, request log, replay buffer
// and publisher queue are all "the newest n of something".
//
// The one idea to know: a ring grows by doubling and holds no memory before the first push, so that an
// idle worker pays nothing for the hundred thousand places its rings may come to hold.
package ring

// Ring is a queue of at most a fixed number of items, indexed from the oldest. It is not safe for
// concurrent use.
type Ring[T any] struct {
	buf  []T
	head int // place of the oldest item
	n    int
	max  int
}

// firstCap is the first capacity of a ring, in items.
const firstCap = 16

// New makes an empty ring that holds up to max items, max >= 0.
func New[T any](max int) *Ring[T] { return &Ring[T]{max: max} }

// Len is the number of items held.
func (r *Ring[T]) Len() int { return r.n }

// Full says whether another Push would lose the oldest item.
func (r *Ring[T]) Full() bool { return r.n >= r.max }

// Push appends v; when the ring is full the oldest item is lost.
func (r *Ring[T]) Push(v T) {
	if r.max == 0 {
		return
	}
	if r.n == r.max {
		r.Pop()
	}
	if r.n == len(r.buf) {
		r.grow()
	}
	r.buf[r.place(r.n)] = v
	r.n++
}

// Pop removes and returns the oldest item of a ring that is not empty.
func (r *Ring[T]) Pop() T {
	var zero T
	v := r.buf[r.head]
	r.buf[r.head] = zero // lets go of what the item points to
	r.head = r.place(1)
	r.n--
	return v
}

// At is the i-th oldest item, 0 <= i < Len. The pointer is valid until the next Push or Pop.
func (r *Ring[T]) At(i int) *T { return &r.buf[r.place(i)] }

func (r *Ring[T]) place(i int) int {
	i += r.head
	if i >= len(r.buf) {
		i -= len(r.buf)
	}
	return i
}

func (r *Ring[T]) grow() {
	next := make([]T, min(max(2*len(r.buf), firstCap), r.max))
	for i := range r.n {
		next[i] = *r.At(i)
	}
	r.buf, r.head = next, 0
}
