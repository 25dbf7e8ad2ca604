package radix

import (
	"cmp"
	"container/heap"
	"fmt"
	"slices"
	"strings"
)

// Policy says which leaf is evicted first; its names are those of SGLang's --radix-eviction-policy.
type Policy string

// The policies.
const (
	LRU  Policy = "lru"  // used longest ago
	LFU  Policy = "lfu"  // inserted least often, of those used longest ago
	FIFO Policy = "fifo" // oldest
	MRU  Policy = "mru"  // used last
	FILO Policy = "filo" // youngest
)

// Policies are the names of all.
func Policies() []string {
	return []string{string(LRU), string(LFU), string(FIFO), string(MRU), string(FILO)}
}

// Validate fails on a name that is none.
func (p Policy) Validate() error {
	if p != "" && !slices.Contains(Policies(), string(p)) {
		return fmt.Errorf("unknown eviction policy %q: have %s", p, strings.Join(Policies(), ", "))
	}
	return nil
}

// order is negative when a goes before b. Ticks differ from node to node except that a path is touched at
// once, and no path has two leaves but a split one: those differ in age.
func (p Policy) order() func(a, b *node) int {
	lru := func(a, b *node) int {
		return cmp.Or(cmp.Compare(a.touched, b.touched), cmp.Compare(a.created, b.created))
	}
	switch p {
	case LFU:
		return func(a, b *node) int { return cmp.Or(cmp.Compare(a.hits, b.hits), lru(a, b)) }
	case FIFO:
		return func(a, b *node) int { return cmp.Compare(a.created, b.created) }
	case MRU:
		return func(a, b *node) int { return lru(b, a) }
	case FILO:
		return func(a, b *node) int { return cmp.Compare(b.created, a.created) }
	}
	return lru
}

// leaves are the nodes that may be evicted, the next one on top of a heap. SGLang sorts its leaves anew for
// each eviction, which comes to the same.
type leaves struct {
	heap   []*node
	before func(a, b *node) int
}

func (l *leaves) add(n *node) {
	if n.slot == notLeaf {
		heap.Push(l, n)
	}
}

func (l *leaves) drop(n *node) {
	if n.slot != notLeaf {
		heap.Remove(l, n.slot)
	}
}

// fix moves a leaf whose order may have changed.
func (l *leaves) fix(n *node) {
	if n.slot != notLeaf {
		heap.Fix(l, n.slot)
	}
}

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (l *leaves) Len() int           { return len(l.heap) }
func (l *leaves) Less(i, j int) bool { return l.before(l.heap[i], l.heap[j]) < 0 }

func (l *leaves) Swap(i, j int) {
	l.heap[i], l.heap[j] = l.heap[j], l.heap[i]
	l.heap[i].slot, l.heap[j].slot = i, j
}

func (l *leaves) Push(x any) {
	n := x.(*node)
	n.slot = len(l.heap)
	l.heap = append(l.heap, n)
}

func (l *leaves) Pop() any {
	last := len(l.heap) - 1
	n := l.heap[last]
	l.heap[last] = nil
	l.heap = l.heap[:last]
	n.slot = notLeaf
	return n
}

var _ heap.Interface = (*leaves)(nil)
