package crtc

import "fleetdrill/gateway/index"

// Store implements index.Index: it matches along the edges behind the parent, splits the one that the chain
// leaves, and hangs the rest there.
func (x *Index) Store(h index.Holder, parent uint64, hasParent bool, hashes, contents []uint64) index.StoreResult {
	if h >= index.MaxHolders {
		x.refused.Add(int64(len(hashes)))
		return index.StoreResult{Refused: len(hashes)}
	}
	s := x.holders.Of(h)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.names == nil {
		s.names = make(map[uint64]spot)
	}
	w := walk{index: x, holder: h, names: s.names, hashes: hashes, contents: contents}
	if hasParent {
		at, ok := s.names[parent]
		if !ok {
			return index.StoreResult{UnknownParent: true}
		}
		w.node, w.position = at.node.lockAt(at.position), at.position+1
	} else {
		w.node = x.root
		w.node.mu.Lock()
	}
	for w.step() {
	}
	w.node.mu.Unlock()
	// Old places go last: pruning one earlier could cut the branch that the walk stands on.
	x.unname(h, w.moved)
	return w.result
}

// walk is one store on its way. Its node is locked.
type walk struct {
	index            *Index
	holder           index.Holder
	names            map[uint64]spot
	hashes, contents []uint64 // what is left to place
	node             *node
	position         uint32 // of the next block
	moved            []spot
	result           index.StoreResult
}

// step places what belongs on this node and goes to the next one; false when all is placed.
func (w *walk) step() bool {
	n := w.node
	from := w.position - n.start
	m := uint32(0)
	for rest := n.edge[from:]; int(m) < min(len(rest), len(w.contents)) && rest[m].content == w.contents[m]; m++ {
	}
	w.claim(from, m)
	if len(w.contents) == 0 {
		return false
	}
	if int(from+m) < len(n.edge) {
		w.index.blocks.Add(-int64(n.split(from + m)))
	}
	if c := n.child(w.contents[0]); c != nil {
		c.mu.Lock()
		n.mu.Unlock()
		w.node = c
		return true
	}
	w.index.blocks.Add(int64(len(w.contents)))
	if n != w.index.root && !n.internal && n.isFull(w.holder) {
		w.extend()
		return false
	}
	c := newNode(n, w.position, w.contents)
	c.mu.Lock()
	n.adopt(c)
	n.mu.Unlock()
	w.node = c
	w.claim(0, uint32(len(w.contents)))
	return false
}

// extend lengthens a leaf that the holder has all of. Whoever else had all of it has its old length now.
func (w *walk) extend() {
	n := w.node
	old := uint32(len(n.edge))
	for i, word := range n.full {
		for b := range 64 {
			if word>>b&1 != 0 {
				n.cuts = append(n.cuts, cut{holder: index.Holder(i*64 + b), length: old})
			}
		}
	}
	clear(n.full)
	for _, c := range w.contents {
		n.edge = append(n.edge, block{content: c})
	}
	n.end.Store(n.start + uint32(len(n.edge)))
	w.claim(old, uint32(len(w.contents)))
}

// claim names the next m blocks, which are those from an offset of the node on, and covers them if the
// holder covers all before.
func (w *walk) claim(from, m uint32) {
	if m == 0 {
		return
	}
	n := w.node
	for i := range m {
		w.name(w.hashes[i], w.position+i, &n.edge[from+i])
	}
	if have := n.covered(w.holder); have >= from && from+m > have {
		n.cover(w.holder, from+m)
	}
	w.hashes, w.contents, w.position = w.hashes[m:], w.contents[m:], w.position+m
}

func (w *walk) name(hash uint64, position uint32, b *block) {
	old, known := w.names[hash]
	if known {
		w.result.Known = append(w.result.Known, hash)
	}
	switch {
	case known && old.position == position && old.node.at(position) == w.node:
		w.result.Duplicate++
		return
	case known:
		w.result.Moved++
		w.moved = append(w.moved, old)
	default:
		w.result.Stored++
	}
	b.names++
	w.node.refs++
	w.names[hash] = spot{node: w.node, position: position}
}
