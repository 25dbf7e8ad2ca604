package crtc

import (
	"slices"
	"sync"
	"sync/atomic"

	"fleetdrill/gateway/index"
)

// compactKids is how many children a node keeps in a slice before it takes a map.
const compactKids = 4

// block is one position of an edge. names counts the engine hashes, of all holders, that name it: an edge
// goes when nobody names it, not when nobody covers it, because a name must lead somewhere.
type block struct {
	content uint64
	names   uint32
}

// cut says that a holder has the first length blocks of an edge.
type cut struct {
	holder index.Holder
	length uint32
}

// node is an edge and what hangs behind it. Locks are taken from parent to child.
type node struct {
	// start is the chain position of the first block; it never changes.
	start uint32
	// first is the content of the first block, by which the parent finds the node; it never changes.
	first uint64
	// end and next let a name that a split has left behind find its block without a lock: positions from end
	// on are in next, which is set first.
	end  atomic.Uint32
	next atomic.Pointer[node]
	// parent is changed under the lock of the parent that is.
	parent atomic.Pointer[node]

	mu   sync.RWMutex
	edge []block
	// full has a bit per holder of the whole edge; cuts are the others, in no order, lengths in 1..len-1.
	full []uint64
	cuts []cut
	// few are the children while they are few, many after that.
	few  []*node
	many map[uint64]*node
	// internal is set with the first child and stays: a node that had children is not lengthened again.
	internal bool
	refs     int // sum of names over the edge
	dead     bool
}

func newNode(parent *node, start uint32, contents []uint64) *node {
	n := &node{start: start, first: contents[0], edge: make([]block, len(contents))}
	for i, c := range contents {
		n.edge[i].content = c
	}
	n.parent.Store(parent)
	n.end.Store(start + uint32(len(contents)))
	return n
}

// at is the node that holds a position now: n or the one behind it that a split made.
func (n *node) at(position uint32) *node {
	for position >= n.end.Load() {
		n = n.next.Load()
	}
	return n
}

// lockAt is at with the node locked.
func (n *node) lockAt(position uint32) *node {
	for {
		n = n.at(position)
		if n.mu.Lock(); position < n.end.Load() {
			return n
		}
		n.mu.Unlock()
	}
}

// child is the child whose edge begins with content, nil without one.
func (n *node) child(content uint64) *node {
	if n.many != nil {
		return n.many[content]
	}
	for _, c := range n.few {
		if c.first == content {
			return c
		}
	}
	return nil
}

func (n *node) adopt(c *node) {
	n.internal = true
	switch {
	case n.many != nil:
		n.many[c.first] = c
	case len(n.few) < compactKids:
		n.few = append(n.few, c)
	default:
		n.many = make(map[uint64]*node, 2*compactKids)
		for _, k := range append(n.few, c) {
			n.many[k.first] = k
		}
		n.few = nil
	}
}

func (n *node) disown(c *node) {
	if n.many != nil {
		delete(n.many, c.first)
		return
	}
	n.few = slices.DeleteFunc(n.few, func(k *node) bool { return k == c })
}

func (n *node) kids() int { return len(n.few) + len(n.many) }

// needed says that the node must stay: it is named or leads on.
func (n *node) needed() bool { return n.refs > 0 || n.kids() > 0 }

// covered is how many leading blocks of the edge h has, as far as can be said.
func (n *node) covered(h index.Holder) uint32 {
	if n.isFull(h) {
		return uint32(len(n.edge))
	}
	for _, c := range n.cuts {
		if c.holder == h {
			return c.length
		}
	}
	return 0
}

func (n *node) isFull(h index.Holder) bool {
	return int(h/64) < len(n.full) && n.full[h/64]>>(h%64)&1 != 0
}

// cover makes the first length blocks what h has.
func (n *node) cover(h index.Holder, length uint32) {
	n.cuts = slices.DeleteFunc(n.cuts, func(c cut) bool { return c.holder == h })
	if int(h/64) < len(n.full) {
		n.full[h/64] &^= 1 << (h % 64)
	}
	switch {
	case length == 0:
	case int(length) == len(n.edge):
		n.fill(h)
	default:
		n.cuts = append(n.cuts, cut{holder: h, length: length})
	}
}

func (n *node) fill(h index.Holder) {
	for int(h/64) >= len(n.full) {
		n.full = append(n.full, 0)
	}
	n.full[h/64] |= 1 << (h % 64)
}

// split cuts the edge after its first length blocks. What is behind becomes a child that takes over the
// children, and is dropped at once if nobody needs it. Edges are never joined again. It reports the blocks dropped.
func (n *node) split(length uint32) (dropped int) {
	back := &node{start: n.start + length, first: n.edge[length].content, edge: slices.Clone(n.edge[length:])}
	back.parent.Store(n)
	for _, b := range back.edge {
		back.refs += int(b.names)
	}
	back.full = slices.Clone(n.full)
	front := n.cuts[:0]
	for _, c := range n.cuts {
		if c.length > length {
			back.cuts = append(back.cuts, cut{holder: c.holder, length: c.length - length})
		}
		if c.length >= length {
			n.fill(c.holder)
		} else {
			front = append(front, c)
		}
	}
	n.cuts, n.edge = front, slices.Clip(n.edge[:length])
	if back.refs == 0 && n.kids() == 0 {
		n.end.Store(n.start + length)
		return len(back.edge)
	}
	back.few, back.many, back.internal = n.few, n.many, n.internal
	for _, c := range back.few {
		c.parent.Store(back)
	}
	for _, c := range back.many {
		c.parent.Store(back)
	}
	n.refs -= back.refs
	n.few, n.many = nil, nil
	n.adopt(back)
	back.end.Store(back.start + uint32(len(back.edge)))
	back.next.Store(n.next.Load())
	n.next.Store(back)
	n.end.Store(n.start + length)
	return 0
}
