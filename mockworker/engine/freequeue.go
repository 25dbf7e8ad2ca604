package engine

// freeQueue orders the blocks nobody holds by when they may be reused: popped from the front, hashed
// blocks appended at the back, blocks without a hash prepended.
//
// At the start every block is in it in order of ids. Those never used yet are kept as a range between the
// two linked parts, so that an engine with a large pool touches only the memory it has used.
type freeQueue struct {
	blocks      []block
	front, back list
	fresh       int32 // first block never used; ids from here to the end lie between front and back
	size        int
}

// list is a doubly linked run of blocks.
type list struct{ first, last int32 }

// pop takes the block at the front; the queue must not be empty.
func (q *freeQueue) pop() int32 {
	q.size--
	switch {
	case q.front.first != nullBlock:
		return q.unlink(&q.front, q.front.first)
	case int(q.fresh) < len(q.blocks):
		q.fresh++
		return q.fresh - 1
	}
	return q.unlink(&q.back, q.back.first)
}

func (q *freeQueue) pushBack(id int32) {
	b := &q.blocks[id]
	b.prev, b.next = q.back.last, nullBlock
	if b.prev != nullBlock {
		q.blocks[b.prev].next = id
	} else {
		q.back.first = id
	}
	q.back.last = id
	q.size++
}

func (q *freeQueue) pushFront(id int32) {
	b := &q.blocks[id]
	b.prev, b.next = nullBlock, q.front.first
	if b.next != nullBlock {
		q.blocks[b.next].prev = id
	} else {
		q.front.last = id
	}
	q.front.first = id
	q.size++
}

// remove takes a cached block out of the middle. Only blocks without a hash are prepended, so a cached
// one is always in the back part.
func (q *freeQueue) remove(id int32) {
	q.unlink(&q.back, id)
	q.size--
}

func (q *freeQueue) unlink(l *list, id int32) int32 {
	b := &q.blocks[id]
	if b.prev != nullBlock {
		q.blocks[b.prev].next = b.next
	} else {
		l.first = b.next
	}
	if b.next != nullBlock {
		q.blocks[b.next].prev = b.prev
	} else {
		l.last = b.prev
	}
	b.prev, b.next = nullBlock, nullBlock
	return id
}

// each yields the queue from the front, for tests and dumps.
func (q *freeQueue) each(yield func(id int32) bool) {
	for id := q.front.first; id != nullBlock; id = q.blocks[id].next {
		if !yield(id) {
			return
		}
	}
	for id := q.fresh; int(id) < len(q.blocks); id++ {
		if !yield(id) {
			return
		}
	}
	for id := q.back.first; id != nullBlock; id = q.blocks[id].next {
		if !yield(id) {
			return
		}
	}
}
