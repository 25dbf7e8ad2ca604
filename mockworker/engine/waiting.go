package engine

import (
	"slices"
	"sort"
)

// The scheduling policies of Config.
const (
	// PolicyFCFS is first come, first served, and the empty text too.
	PolicyFCFS = "fcfs"
	// PolicyPriority serves the lowest Request.Priority first, equals in the order they arrived.
	PolicyPriority = "priority"
)

// waitQueue holds the waiting in the order they are served: first come, first served, except that a
// preempted request comes back to the front; or by priority, where coming back is as good as arriving.
type waitQueue struct {
	items []*request
	head  int // items before it have left
}

// before says whether q is served before r by priority.
func (q *request) before(r *request) bool {
	if q.priority != r.priority {
		return q.priority < r.priority
	}
	return q.order < r.order
}

func (w *waitQueue) len() int { return len(w.items) - w.head }

// ready is the place of the request to be served next at now: of those that have come through to the
// scheduler the first. All take equally long, so that first come, first served only the front can be it.
func (w *waitQueue) ready(now int64, policy string) (at int, ok bool) {
	for at = w.head; at < len(w.items); at++ {
		if w.items[at].readyAt <= now {
			return at, true
		}
		if policy != PolicyPriority {
			break
		}
	}
	return 0, false
}

// soonest is when the next request will have come through; there must be one.
func (w *waitQueue) soonest() int64 {
	at := w.items[w.head].readyAt
	for _, q := range w.items[w.head:] {
		at = min(at, q.readyAt)
	}
	return at
}

// push takes in a request that arrives.
func (w *waitQueue) push(q *request, policy string) {
	if policy == PolicyPriority {
		w.insert(q)
		return
	}
	w.items = append(w.items, q)
}

// pushBack takes in a request that was preempted.
func (w *waitQueue) pushBack(q *request, policy string) {
	if policy == PolicyPriority {
		w.insert(q)
		return
	}
	w.pushFront(q)
}

func (w *waitQueue) insert(q *request) {
	at := w.head + sort.Search(w.len(), func(i int) bool { return q.before(w.items[w.head+i]) })
	if at == w.head {
		w.pushFront(q)
		return
	}
	w.items = slices.Insert(w.items, at, q)
}

// take takes out the request at a place.
func (w *waitQueue) take(at int) {
	if at > w.head {
		w.items = slices.Delete(w.items, at, at+1)
		return
	}
	w.pop()
}

func (w *waitQueue) pop() {
	w.items[w.head] = nil
	w.head++
	if w.head == len(w.items) {
		w.items, w.head = w.items[:0], 0
	} else if w.head >= 64 && w.head*2 >= len(w.items) {
		w.items, w.head = slices.Delete(w.items, 0, w.head), 0
	}
}

func (w *waitQueue) pushFront(q *request) {
	if w.head == 0 {
		w.items = slices.Insert(w.items, 0, q)
		return
	}
	w.head--
	w.items[w.head] = q
}

// deleteFunc takes out every request that gone says has left.
func (w *waitQueue) deleteFunc(gone func(*request) bool) {
	kept := slices.DeleteFunc(w.items[w.head:], gone)
	w.items = w.items[:w.head+len(kept)]
}
