package truth

// ring is a queue of the newest max items, indexed from the oldest. It grows by doubling and holds no
// memory before the first push, so that an idle worker pays nothing for it.
type ring[T any] struct {
	buf  []T
	head int // place of the oldest item
	n    int
	max  int
}

// ringStart is the first capacity of a ring, in items.
const ringStart = 64

// push appends v; when the ring is full the oldest item is lost.
func (r *ring[T]) push(v T) {
	if r.n == r.max {
		r.pop()
	}
	if r.n == len(r.buf) {
		r.grow()
	}
	r.buf[r.place(r.n)] = v
	r.n++
}

// pop removes and returns the oldest item of a ring that is not empty.
func (r *ring[T]) pop() T {
	var zero T
	v := r.buf[r.head]
	r.buf[r.head] = zero // lets go of what the item points to
	r.head = r.place(1)
	r.n--
	return v
}

// at is the i-th oldest item, 0 <= i < n. The pointer is valid until the next push or pop.
func (r *ring[T]) at(i int) *T { return &r.buf[r.place(i)] }

func (r *ring[T]) place(i int) int {
	i += r.head
	if i >= len(r.buf) {
		i -= len(r.buf)
	}
	return i
}

func (r *ring[T]) grow() {
	next := make([]T, min(max(2*len(r.buf), ringStart), r.max))
	for i := range r.n {
		next[i] = *r.at(i)
	}
	r.buf, r.head = next, 0
}
