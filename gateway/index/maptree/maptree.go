package maptree

import (
	"sync"
	"sync/atomic"

	"fleetdrill/gateway/index"
)

// node is one place: a block with this content behind this chain of blocks.
type node struct {
	parent   *node
	content  uint64
	position int
	// only is one child and children the others by content; most nodes are inner nodes of one chain or
	// leaves of many, and need no map.
	only     *node
	children map[uint64]*node
	// names lists the holders that have this block, in no order. Few holders share a deep block, so a
	// slice beats a map in both size and time. It begins in first, which is all that most nodes need.
	names []naming
	first [1]naming
}

// naming says that count engine hashes of a holder name a node; count > 0.
type naming struct {
	holder index.Holder
	count  uint32
}

// Tree is the plain index. Make it with New.
type Tree struct {
	mu sync.RWMutex
	// root is position -1: no block, never named, never pruned.
	root node
	// holders is indexed by holder id; nil for an id that is not known.
	holders []map[uint64]*node
	nodes   int64
	// refused counts blocks of holders that cannot be.
	refused atomic.Int64
	// spare are pruned nodes to be used again: a full engine evicts a block for every one it stores.
	spare []*node
}

// maxSpare bounds the pruned nodes kept, about 6 MB.
const maxSpare = 1 << 16

var _ index.Index = (*Tree)(nil)

// New returns an empty tree.
func New() *Tree { return &Tree{root: node{position: -1}} }

// Store implements index.Index.
func (t *Tree) Store(h index.Holder, parent uint64, hasParent bool, hashes, contents []uint64) index.StoreResult {
	if h >= index.MaxHolders {
		t.refused.Add(int64(len(hashes)))
		return index.StoreResult{Refused: len(hashes)}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	held := t.open(h)
	at := &t.root
	if hasParent {
		if at = held[parent]; at == nil {
			return index.StoreResult{UnknownParent: true}
		}
	}
	var res index.StoreResult
	for i, hash := range hashes {
		at = t.child(at, contents[i])
		old := held[hash]
		switch {
		case old == at:
			res.Duplicate++
			res.Known = append(res.Known, hash)
			continue
		case old == nil:
			res.Stored++
		default:
			res.Moved++
			res.Known = append(res.Known, hash)
		}
		at.name(h)
		held[hash] = at
		// The old place goes only now: pruning it earlier could cut the branch we stand on.
		if old != nil {
			t.unname(old, h)
		}
	}
	return res
}

// Remove implements index.Index.
func (t *Tree) Remove(h index.Holder, hashes []uint64) (removed, unknown int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	held := t.held(h)
	for i, hash := range hashes {
		n := held[hash]
		if n == nil {
			continue
		}
		delete(held, hash)
		t.unname(n, h)
		hashes[removed], hashes[i] = hash, hashes[removed]
		removed++
	}
	return removed, len(hashes) - removed
}

// Clear implements index.Index.
func (t *Tree) Clear(h index.Holder) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.empty(h)
}

// Drop implements index.Index.
func (t *Tree) Drop(h index.Holder) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.empty(h); int(h) < len(t.holders) {
		t.holders[h] = nil
	}
}

// Lookup implements index.Index. A holder's score is the number of nodes it names from the root on, so a
// holder scores at a node only if it scored at every one before: score == position.
func (t *Tree) Lookup(chain []uint64, dst index.Scores) index.Scores {
	t.mu.RLock()
	defer t.mu.RUnlock()
	dst = cleared(dst, len(t.holders))
	at := &t.root
	for i, content := range chain {
		if at = at.next(content); at == nil {
			break
		}
		alive := false
		for _, n := range at.names {
			if dst[n.holder] == uint32(i) {
				dst[n.holder]++
				alive = true
			}
		}
		if !alive {
			break
		}
	}
	return dst
}

// Holds implements index.Index.
func (t *Tree) Holds(h index.Holder, hash uint64) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	_, held := t.held(h)[hash]
	return held
}

// Count implements index.Index.
func (t *Tree) Count(h index.Holder) int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.held(h))
}

// Stats implements index.Index.
func (t *Tree) Stats() index.Stats {
	t.mu.RLock()
	defer t.mu.RUnlock()
	s := index.Stats{Nodes: t.nodes, Refused: t.refused.Load()}
	for _, held := range t.holders {
		if held != nil {
			s.Holders++
			s.Memberships += int64(len(held))
		}
	}
	return s
}

// Each implements index.Index.
func (t *Tree) Each(h index.Holder, fn func(index.Membership) bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for hash, n := range t.held(h) {
		if !fn(index.Membership{Hash: hash, Position: n.position, Content: n.content}) {
			return
		}
	}
}

// held is the map of h, nil when it is not known.
func (t *Tree) held(h index.Holder) map[uint64]*node {
	if int(h) >= len(t.holders) {
		return nil
	}
	return t.holders[h]
}

// open is the map of h, made on first use.
func (t *Tree) open(h index.Holder) map[uint64]*node {
	for int(h) >= len(t.holders) {
		t.holders = append(t.holders, nil)
	}
	if t.holders[h] == nil {
		t.holders[h] = make(map[uint64]*node)
	}
	return t.holders[h]
}

// empty ends every membership of h.
func (t *Tree) empty(h index.Holder) {
	held := t.held(h)
	for hash, n := range held {
		delete(held, hash)
		t.unname(n, h)
	}
}

// child is the child of n with this content, made on first use.
func (t *Tree) child(n *node, content uint64) *node {
	if c := n.next(content); c != nil {
		return c
	}
	c := t.fresh()
	c.parent, c.content, c.position = n, content, n.position+1
	switch {
	case n.only == nil:
		n.only = c
	case n.children == nil:
		n.children = map[uint64]*node{content: c}
	default:
		n.children[content] = c
	}
	t.nodes++
	return c
}

// next is the child of n with this content, nil without one.
func (n *node) next(content uint64) *node {
	if n.only != nil && n.only.content == content {
		return n.only
	}
	return n.children[content]
}

// fresh is a node without a place.
func (t *Tree) fresh() *node {
	var c *node
	if n := len(t.spare); n > 0 {
		c, t.spare = t.spare[n-1], t.spare[:n-1]
	} else {
		c = new(node)
	}
	c.names = c.first[:0]
	return c
}

// cut takes n, which nobody needs, off its parent, and returns that.
func (t *Tree) cut(n *node) *node {
	up := n.parent
	if up.only == n {
		up.only = nil
	} else {
		delete(up.children, n.content)
	}
	t.nodes--
	if len(t.spare) < maxSpare {
		*n = node{}
		t.spare = append(t.spare, n)
	}
	return up
}

// name counts one more hash of h on n.
func (n *node) name(h index.Holder) {
	for i := range n.names {
		if n.names[i].holder == h {
			n.names[i].count++
			return
		}
	}
	n.names = append(n.names, naming{holder: h, count: 1})
}

// unname takes one hash of h off n and prunes the branch that nobody needs any more.
func (t *Tree) unname(n *node, h index.Holder) {
	for i := range n.names {
		if n.names[i].holder != h {
			continue
		}
		if n.names[i].count--; n.names[i].count == 0 {
			last := len(n.names) - 1
			n.names[i] = n.names[last]
			n.names = n.names[:last]
		}
		break
	}
	for n.parent != nil && len(n.names) == 0 && n.only == nil && len(n.children) == 0 {
		n = t.cut(n)
	}
}

// cleared is dst with n zeros.
func cleared(dst index.Scores, n int) index.Scores {
	if cap(dst) < n {
		return make(index.Scores, n)
	}
	dst = dst[:n]
	clear(dst)
	return dst
}
