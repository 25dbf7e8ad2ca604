package crtc

import (
	"sync"
	"sync/atomic"

	"fleetdrill/gateway/index"
)

// Index is the tree. Make it with New.
type Index struct {
	root   *node
	blocks atomic.Int64
	// refused counts blocks of holders that cannot be.
	refused atomic.Int64

	holders index.Holders[holder]
}

// holder is one holder's names.
type holder struct {
	mu sync.Mutex
	// names is nil until the first.
	names map[uint64]spot
}

// spot is a block: its position, and the node that had it when it was named. A split may have moved it on
// since, which node.at finds out.
type spot struct {
	node     *node
	position uint32
}

var _ index.Index = (*Index)(nil)

// New returns an empty tree.
func New() *Index { return &Index{root: &node{}} }

// Remove implements index.Index.
func (x *Index) Remove(h index.Holder, hashes []uint64) (removed, unknown int) {
	s := x.holders.Known(h)
	if s == nil {
		return 0, len(hashes)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	spots := make([]spot, 0, len(hashes))
	for i, hash := range hashes {
		at, ok := s.names[hash]
		if !ok {
			continue
		}
		delete(s.names, hash)
		hashes[removed], hashes[i] = hash, hashes[removed]
		removed++
		spots = append(spots, at)
	}
	x.unname(h, spots)
	return removed, len(hashes) - removed
}

// unname takes one name of h off each block; those of one node that stand together go under one lock.
func (x *Index) unname(h index.Holder, spots []spot) {
	for len(spots) > 0 {
		n := spots[0].node.lockAt(spots[0].position)
		kept := n.covered(h)
		before := kept
		for len(spots) > 0 && spots[0].node.at(spots[0].position) == n {
			offset := spots[0].position - n.start
			n.edge[offset].names--
			n.refs--
			kept = min(kept, offset)
			spots = spots[1:]
		}
		if kept != before {
			n.cover(h, kept)
		}
		needed := n.needed()
		n.mu.Unlock()
		if !needed {
			x.unlink(n)
		}
	}
}

// unlink takes a node that nobody needs off its parent, then the parent if that is not needed either.
func (x *Index) unlink(n *node) {
	for n != x.root {
		up := n.parent.Load()
		up.mu.Lock()
		if n.parent.Load() != up { // a split came between
			up.mu.Unlock()
			continue
		}
		n.mu.Lock()
		stays := n.dead || n.needed()
		if !stays {
			up.disown(n)
			n.dead = true
			x.blocks.Add(-int64(len(n.edge)))
		}
		n.mu.Unlock()
		stays = stays || up.needed()
		up.mu.Unlock()
		if stays {
			return
		}
		n = up
	}
}

// Clear implements index.Index.
func (x *Index) Clear(h index.Holder) {
	s := x.holders.Known(h)
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	edges := make(map[*node][]spot) // so that an edge is locked once
	for _, at := range s.names {
		n := at.node.at(at.position)
		edges[n] = append(edges[n], at)
	}
	for _, spots := range edges {
		x.unname(h, spots)
	}
	s.names = nil
}

// Drop implements index.Index.
func (x *Index) Drop(h index.Holder) {
	x.Clear(h)
	x.holders.Forget(h)
}

// Holds implements index.Index.
func (x *Index) Holds(h index.Holder, hash uint64) bool {
	s := x.holders.Known(h)
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, held := s.names[hash]
	return held
}

// Count implements index.Index.
func (x *Index) Count(h index.Holder) int {
	s := x.holders.Known(h)
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.names)
}

// Stats implements index.Index. Nodes are blocks of edges, those included that nobody has any more but that
// stand before or behind one that somebody has.
func (x *Index) Stats() index.Stats {
	out := index.Stats{Nodes: x.blocks.Load(), Refused: x.refused.Load()}
	for h, s := range x.holders.All() {
		if s != nil {
			out.Holders++
			out.Memberships += int64(x.Count(index.Holder(h)))
		}
	}
	return out
}

// Each implements index.Index. Only this holder is locked.
func (x *Index) Each(h index.Holder, fn func(index.Membership) bool) {
	s := x.holders.Known(h)
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for hash, at := range s.names {
		n := at.node.lockAt(at.position)
		m := index.Membership{Hash: hash, Position: int(at.position), Content: n.edge[at.position-n.start].content}
		n.mu.Unlock()
		if !fn(m) {
			return
		}
	}
}
