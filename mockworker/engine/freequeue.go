package engine

// freeQueue orders the blocks nobody holds by when they may be reused: popped from the front, hashed
// blocks appended at the back, blocks without a hash prepended.
//
// At the start every block is in it in order of ids. Those never used yet are kept as a range between the
// two linked parts, so that an engine with a large pool touches only the memory it has used.
type freeQueue struct {
	blocks      []block
	front       int32 // blocks without a hash, last in first out, linked by next
	first, last int32 // the back part, doubly linked, because a hit takes a block out of its middle
	fresh       int32 // first block never used; ids from here to the end lie between the two parts
	size        int
}

// pop takes the block at the front; the queue must not be empty.
func (q *freeQueue) pop() int32 {
	id := q.first
	switch {
	case q.front != nullBlock:
		id = q.front
		q.front, q.blocks[id].next = q.blocks[id].next, nullBlock
		q.size--
	case int(q.fresh) < len(q.blocks):
		id = q.fresh
		q.fresh++
		q.size--
	default:
		q.remove(id)
	}
	return id
}

func (q *freeQueue) pushFront(id int32) {
	q.front, q.blocks[id].next = id, q.front
	q.size++
}

func (q *freeQueue) pushBack(id int32) {
	b := &q.blocks[id]
	b.prev, b.next = q.last, nullBlock
	if b.prev != nullBlock {
		q.blocks[b.prev].next = id
	} else {
		q.first = id
	}
	q.last = id
	q.size++
}

// remove takes a block out of the back part. A cached block is always there: only blocks without a hash
// are prepended.
func (q *freeQueue) remove(id int32) {
	b := &q.blocks[id]
	if b.prev != nullBlock {
		q.blocks[b.prev].next = b.next
	} else {
		q.first = b.next
	}
	if b.next != nullBlock {
		q.blocks[b.next].prev = b.prev
	} else {
		q.last = b.prev
	}
	b.prev, b.next = nullBlock, nullBlock
	q.size--
}
