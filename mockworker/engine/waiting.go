package engine

import "slices"

// waitQueue is first come, first served, except that a preempted request comes back to the front.
type waitQueue struct {
	items []*request
	head  int // items before it have left
}

func (w *waitQueue) len() int        { return len(w.items) - w.head }
func (w *waitQueue) front() *request { return w.items[w.head] }
func (w *waitQueue) push(q *request) { w.items = append(w.items, q) }

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
