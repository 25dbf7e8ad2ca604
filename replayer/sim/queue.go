package sim

// kind orders what happens at one instant: engines first, then what reaches the gateway, then its own
// timers, then what leaves it, and a client last, who finds everything else done.
type kind uint8

const (
	stepEnds      kind = iota // a worker's model pass is over
	removalsDue               // removals that an idle worker holds back may go out
	batchArrives              // a worker's event batch reaches the gateway
	tokensArrive              // the outputs of a pass reach the gateway and the client
	replayAnswers             // a worker's replay answer reaches the gateway
	pingAnswers               // a worker's health answer reaches the gateway
	pollAnswers               // a worker's load record reaches the gateway
	streamTicks               // a rank's cursor wants to look at the time
	fleetTicks                // the fleet judges everybody
	replayAsked               // a call for replay reaches a worker
	pollAsked                 // a poll reaches a worker
	submitted                 // requests and hang-ups reach a worker
	beats                     // a worker that pushes load records sends one of its own accord
	arrives                   // a client's request reaches the gateway
)

// event is an entry of the queue. Its order is (at, kind, worker, rank, n): ties of time are decided by what
// happens and where, and of one kind at one place by who was put in first.
type event struct {
	at    int64  // ns of virtual time
	order uint64 // kind, worker and rank, from the top 8, 16 and 8 bits
	n     uint64
}

func (e *event) kind() kind  { return kind(e.order >> 56) }
func (e *event) worker() int { return int(e.order >> 40 & 0xffff) }

func (e *event) before(o *event) bool {
	switch {
	case e.at != o.at:
		return e.at < o.at
	case e.order != o.order:
		return e.order < o.order
	}
	return e.n < o.n
}

// queue is a heap of events, four children to a node: half as deep as a binary one.
type queue struct {
	heap []event
	n    uint64
}

// push adds an event at a worker's rank 0.
func (q *queue) push(at int64, k kind, worker int) {
	q.n++
	q.heap = append(q.heap, event{at, uint64(k)<<56 | uint64(worker)<<40, q.n})
	i := len(q.heap) - 1
	e := q.heap[i]
	for i > 0 {
		up := (i - 1) / 4
		if !e.before(&q.heap[up]) {
			break
		}
		q.heap[i] = q.heap[up]
		i = up
	}
	q.heap[i] = e
}

// pop takes the first event; the queue must not be empty.
func (q *queue) pop() event {
	first := q.heap[0]
	last := len(q.heap) - 1
	e := q.heap[last]
	q.heap = q.heap[:last]
	if last == 0 {
		return first
	}
	i := 0
	for {
		least := 4*i + 1
		if least >= last {
			break
		}
		for c := least + 1; c < min(4*i+5, last); c++ {
			if q.heap[c].before(&q.heap[least]) {
				least = c
			}
		}
		if !q.heap[least].before(&e) {
			break
		}
		q.heap[i] = q.heap[least]
		i = least
	}
	q.heap[i] = e
	return first
}

// fifo is a first-in-first-out list that keeps its memory.
type fifo[T any] struct {
	items []T
	head  int
}

func (f *fifo[T]) push(v T) { f.items = append(f.items, v) }

// pop takes the first; the list must not be empty.
func (f *fifo[T]) pop() T {
	var zero T
	v := f.items[f.head]
	f.items[f.head] = zero
	if f.head++; f.head == len(f.items) {
		f.items, f.head = f.items[:0], 0
	} else if f.head >= 64 && 2*f.head >= len(f.items) {
		n := copy(f.items, f.items[f.head:])
		clear(f.items[n:])
		f.items, f.head = f.items[:n], 0
	}
	return v
}
