package radix

import (
	"slices"

	"fleetdrill/mockworker/blockhash"
	"fleetdrill/mockworker/engine"
)

// page is one cached page: its chained hash, and the content hash that goes with it.
type page struct {
	hash    blockhash.Digest
	content uint64
}

// node is a run of pages without a branch inside.
type node struct {
	branch *branch
	parent *node // nil of a root
	pages  []page
	depth  int // pages before the first one
	// children counts nodes that follow this one, devices those of them with a device copy.
	children, devices int
	// evicted says that only the host has a copy, backed that the host has one, and writing is the transfer that
	// makes it. text and salt are what the store of a copy tells, kept only for a host tier.
	evicted, backed bool
	writing         *writing
	text            []uint32
	salt            string
	bigram          bool
	// locks counts the requests that use this node or one behind it; a locked node is not evicted.
	locks int
	// touched and created are ticks of the tree's own clock, hits the inserts that came past: what eviction
	// policies go by.
	touched, created uint64
	hits             int
	// slot is the place among the leaves that may be evicted, notLeaf without one.
	slot int
}

const notLeaf = -1

func (n *node) isRoot() bool { return n.parent == nil }
func (n *node) end() int     { return n.depth + len(n.pages) }

// branch is the tree of one adapter, found by the hash of each node's first page.
type branch struct {
	root  *node
	nodes map[blockhash.Digest]*node
}

// tree is every adapter's tree, and what eviction chooses from.
type tree struct {
	branches map[string]*branch
	leaves   leaves
	host     *hostTier // nil without one
	clock    uint64
	// pageSize is tokens; pages counts those on the device, evictable those of them that no request uses.
	pageSize         int
	pages, evictable int
	// changed hears of pages that came and went, in the order in which they do.
	changed recorder
}

// recorder takes the tree's changes.
type recorder interface {
	// stored tells of a new node of q, which holds its pages from..to.
	stored(q *request, from, to int)
	// copied tells of a node that another tier has from now on, too.
	copied(n *node, medium string)
	// removed tells of a node that was evicted from a tier.
	removed(n *node, medium string)
}

func newTree(pageSize int, p Policy, r recorder) *tree {
	return &tree{pageSize: pageSize, branches: map[string]*branch{}, leaves: leaves{before: p.order()}, changed: r}
}

// clear forgets every page. Nobody may hold a lock.
func (t *tree) clear() {
	t.branches = map[string]*branch{}
	t.leaves.heap = nil
	t.pages, t.evictable = 0, 0
	if t.host != nil {
		t.host.clear()
	}
}

func (t *tree) tick() uint64 {
	t.clock++
	return t.clock
}

// of is the branch of an adapter, made at its first use.
func (t *tree) of(lora string) *branch {
	b := t.branches[lora]
	if b == nil {
		b = &branch{nodes: map[blockhash.Digest]*node{}}
		b.root = &node{branch: b, slot: notLeaf}
		t.branches[lora] = b
	}
	return b
}

// shared is how many pages of n, from its first, are those of hashes.
func (n *node) shared(hashes []blockhash.Digest) int {
	most := min(len(n.pages), len(hashes))
	for i := 1; i < most; i++ { // the first led here
		if n.pages[i].hash != hashes[i] {
			return i
		}
	}
	return most
}

// peek counts the leading pages that the device has, and changes nothing.
func (t *tree) peek(lora string, hashes []blockhash.Digest) int {
	b, at := t.branches[lora], 0
	if b == nil {
		return 0
	}
	for at < len(hashes) {
		n := b.nodes[hashes[at]]
		if n == nil || n.evicted {
			break
		}
		k := n.shared(hashes[at:])
		at += k
		if k < len(n.pages) {
			break
		}
	}
	return at
}

// match finds the longest prefix that any tier has and the node that ends it, which it makes by a split when
// the prefix ends inside one. Everything on the way counts as used now.
func (t *tree) match(lora string, hashes []blockhash.Digest) (last *node, n int) {
	return t.walk(t.of(lora), hashes, func(*node) {})
}

// walk goes down as far as hashes lead; each node on the way is touched and shown to visit.
func (t *tree) walk(b *branch, hashes []blockhash.Digest, visit func(*node)) (last *node, n int) {
	now := t.tick()
	last = b.root
	for n < len(hashes) {
		child := b.nodes[hashes[n]]
		if child == nil {
			break
		}
		// SGLang touches the whole node before it knows how much of it is shared, so the part that a split
		// leaves behind counts as used, too.
		child.touched = now
		t.heapOf(child).fix(child)
		k := child.shared(hashes[n:])
		if k < len(child.pages) {
			child = t.split(child, k)
		}
		visit(child)
		t.heapOf(child).fix(child)
		last = child
		n += k
	}
	return last, n
}

// heapOf is where a node is a leaf, if it is one: that of the tier which it would leave.
func (t *tree) heapOf(n *node) *leaves {
	if n.evicted {
		return &t.host.leaves
	}
	return &t.leaves
}

// insert puts the first full pages of q into its tree, and returns how many the device had already and the
// node of the last one. A chunk of a prompt that goes on does not count as a hit. What only the host has was
// computed anew, and is the device's again.
func (t *tree) insert(q *request, full int, chunk bool) (existing int, last *node) {
	hits := 1
	if chunk {
		hits = 0
	}
	last, known := t.walk(t.of(q.lora), q.hashes[:full], func(n *node) {
		if n.evicted {
			t.onDevice(n)
			t.changed.stored(q, n.depth, n.end())
			return
		}
		existing = n.end()
		n.hits += hits
		t.hit(n)
	})
	if known == full {
		return existing, last
	}
	fresh := t.grow(last, q.pages(known, full, t.pageSize))
	fresh.hits = hits
	if t.host != nil {
		fresh.text, fresh.salt, fresh.bigram = slices.Clone(q.text(known, full, t.pageSize)), q.salt, q.bigram
	}
	t.leaves.fix(fresh)
	t.changed.stored(q, known, full)
	t.hit(fresh)
	return existing, fresh
}

// grow adds a leaf of pages behind parent.
func (t *tree) grow(parent *node, pages []page) *node {
	now := t.tick()
	n := &node{branch: parent.branch, parent: parent, pages: pages, depth: parent.end(), touched: now, created: now, slot: notLeaf}
	n.branch.nodes[pages[0].hash] = n
	parent.children++
	parent.devices++
	t.pages += len(pages)
	t.evictable += len(pages)
	t.settle(parent)
	t.settle(n)
	return n
}

// split makes the first k pages of n a node of their own, in front of it. Whoever uses n uses both.
func (t *tree) split(n *node, k int) *node {
	now := t.tick()
	head := &node{
		branch: n.branch, parent: n.parent, depth: n.depth, children: 1, locks: n.locks,
		touched: now, created: now, hits: n.hits, slot: notLeaf,
		evicted: n.evicted, backed: n.backed, writing: n.writing, salt: n.salt, bigram: n.bigram,
		pages: slices.Clone(n.pages[:k]), // its own, so that it does not keep those of n when they are evicted
	}
	if !n.evicted {
		head.devices = 1
	}
	if w := n.writing; w != nil {
		w.nodes = slices.Insert(w.nodes, slices.Index(w.nodes, n), head)
	}
	if at := k * t.pageSize; t.host != nil {
		head.text, n.text = slices.Clone(n.text[:at+len(n.text)-len(n.pages)*t.pageSize]), n.text[at:]
	}
	n.parent, n.pages, n.depth = head, n.pages[k:], n.depth+k
	n.branch.nodes[head.pages[0].hash] = head
	n.branch.nodes[n.pages[0].hash] = n
	return head
}

// lock keeps n and everything before it from being evicted, until as many unlocks.
func (t *tree) lock(n *node) {
	for ; !n.isRoot(); n = n.parent {
		if n.locks == 0 && !n.evicted {
			t.evictable -= len(n.pages)
		}
		n.locks++
		t.settle(n)
	}
}

func (t *tree) unlock(n *node) {
	for ; !n.isRoot(); n = n.parent {
		n.locks--
		if n.locks == 0 && !n.evicted {
			t.evictable += len(n.pages)
		}
		t.settle(n)
	}
}

// settle puts n among the leaves that may be evicted, or takes it out.
func (t *tree) settle(n *node) {
	if n.isRoot() {
		return
	}
	behind := n.devices
	if n.evicted {
		behind = n.children
	}
	if behind == 0 && n.locks == 0 {
		t.heapOf(n).add(n)
	} else {
		t.heapOf(n).drop(n)
	}
}

// evict gives up whole leaves of the device, one after the other as the policy has them, until at least want
// pages are gone or nothing may go. It returns how many went. What the host has, or takes, lives on there.
func (t *tree) evict(want int) (gone int) {
	for gone < want && len(t.leaves.heap) > 0 {
		n := t.leaves.heap[0]
		gone += len(n.pages)
		if t.offload(n) {
			continue
		}
		t.leaves.drop(n)
		n.parent.devices--
		t.cut(n, engine.MediumGPU)
	}
	t.pages -= gone
	t.evictable -= gone
	return gone
}

// cut takes a node out of the tree that a tier had as the last one.
func (t *tree) cut(n *node, medium string) {
	delete(n.branch.nodes, n.pages[0].hash)
	t.changed.removed(n, medium)
	n.parent.children--
	t.settle(n.parent)
}

// each yields every page of every tree, once for each tier that has it, until yield returns false.
func (t *tree) each(yield func(engine.Block) bool) {
	for _, b := range t.branches {
		for _, n := range b.nodes {
			for i := range n.pages {
				if !n.evicted && !yield(n.block(i, engine.MediumGPU)) || n.backed && !yield(n.block(i, MediumHost)) {
					return
				}
			}
		}
	}
}

func (n *node) block(i int, medium string) engine.Block {
	b := engine.Block{
		Hash: n.pages[i].hash, Content: n.pages[i].content, Position: n.depth + i,
		Copies: 1, InUse: n.locks > 0 && medium == engine.MediumGPU, Medium: medium, Group: engine.NoGroup,
	}
	switch {
	case i > 0:
		b.Parent = n.pages[i-1].hash.EventInt()
	case !n.parent.isRoot():
		b.Parent = n.parent.pages[len(n.parent.pages)-1].hash.EventInt()
	}
	return b
}
