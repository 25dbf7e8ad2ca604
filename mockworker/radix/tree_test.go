package radix

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"fleetdrill/mockworker/blockhash"
)

// TestTree drives a tree with random inserts, matches, locks and evictions. A reference that knows only which
// prefixes are cached says what every match must find; the tree's own links are checked after each step.
func TestTree(t *testing.T) {
	hasher := blockhash.NewSGLang()
	rapid.Check(t, func(t *rapid.T) {
		m := &treeModel{hasher: hasher, cached: map[string]bool{}, copies: map[blockhash.Digest]int{}}
		m.policy = Policy(rapid.SampledFrom(Policies()).Draw(t, "policy"))
		m.tree = newTree(2, m.policy, m)
		t.Repeat(map[string]func(*rapid.T){
			"insert": m.insert, "match": m.match, "lock": m.lock, "unlock": m.unlock, "evict": m.evict, "": m.check,
		})
	})
}

// treeModel is what an observer outside may conclude; it is the tree's recorder, too.
type treeModel struct {
	t      *rapid.T
	tree   *tree
	policy Policy
	hasher *blockhash.Hasher
	// cached are the prefixes in the tree, as adapter and hashes; copies the fold of what was told.
	cached map[string]bool
	copies map[blockhash.Digest]int
	held   []held
}

type held struct {
	node   *node
	prefix []string
}

// draw makes a request of pages from a small alphabet, so that prefixes are shared in part.
func (m *treeModel) draw(t *rapid.T) *request {
	q := &request{lora: rapid.SampledFrom([]string{"", "", "sql"}).Draw(t, "lora")}
	q.salt = rapid.SampledFrom([]string{"", "", "pepper"}).Draw(t, "salt")
	for _, p := range rapid.SliceOfN(rapid.Uint32Range(0, 1), 1, 6).Draw(t, "pages") {
		q.tokens = append(q.tokens, p, p+7)
	}
	q.hash(m.hasher, 2, len(q.tokens)/2)
	return q
}

func prefix(q *request, n int) string { return fmt.Sprint(q.lora, q.hashes[:n]) }

// expect is how many leading pages of q are cached.
func (m *treeModel) expect(q *request) (n int) {
	for n < len(q.hashes) && m.cached[prefix(q, n+1)] {
		n++
	}
	return n
}

func (m *treeModel) insert(t *rapid.T) {
	m.t = t
	q := m.draw(t)
	want := m.expect(q)
	existing, last := m.tree.insert(q, len(q.hashes), rapid.Bool().Draw(t, "chunk"))
	if existing != want || last.end() != len(q.hashes) {
		t.Fatalf("insert of %d pages found %d, want %d, and ends at %d", len(q.hashes), existing, want, last.end())
	}
	for n := range q.hashes {
		m.cached[prefix(q, n+1)] = true
	}
}

func (m *treeModel) match(t *rapid.T) {
	q := m.draw(t)
	want := m.expect(q)
	if got := m.tree.peek(q.lora, q.hashes); got != want {
		t.Fatalf("peek finds %d pages, want %d", got, want)
	}
	if last, got := m.tree.match(q.lora, q.hashes); got != want || last.end() != want {
		t.Fatalf("match finds %d pages ending at %d, want %d", got, last.end(), want)
	}
}

func (m *treeModel) lock(t *rapid.T) {
	q := m.draw(t)
	last, n := m.tree.match(q.lora, q.hashes)
	m.tree.lock(last)
	h := held{node: last}
	for i := range n {
		h.prefix = append(h.prefix, prefix(q, i+1))
	}
	m.held = append(m.held, h)
}

func (m *treeModel) unlock(t *rapid.T) {
	if len(m.held) == 0 {
		t.Skip("nothing is held")
	}
	i := rapid.IntRange(0, len(m.held)-1).Draw(t, "which")
	m.tree.unlock(m.held[i].node)
	m.held = slices.Delete(m.held, i, i+1)
}

func (m *treeModel) evict(t *rapid.T) {
	m.t = t
	want := rapid.IntRange(1, 5).Draw(t, "pages")
	before, could := m.tree.pages, m.tree.evictable
	gone := m.tree.evict(want)
	if gone != before-m.tree.pages || gone < min(want, could) || gone > could {
		t.Fatalf("evict(%d) took %d of %d, %d could go", want, gone, before, could)
	}
}

// stored implements recorder: what is told was not there before, and hangs on what is.
func (m *treeModel) stored(q *request, from, to int) {
	for i := from; i < to; i++ {
		if m.cached[prefix(q, i+1)] {
			m.t.Fatalf("page %d of a prefix that is cached is told", i)
		}
		m.copies[q.hashes[i]]++
	}
	if from > 0 && !m.cached[prefix(q, from)] {
		m.t.Fatalf("page %d hangs on nothing", from)
	}
}

// copied implements recorder; there is no other tier.
func (m *treeModel) copied(*node, string) { m.t.Fatalf("a node is copied") }

// removed implements recorder: only a leaf that nobody uses goes, and none that the policy has go later.
func (m *treeModel) removed(n *node, _ string) {
	order := m.policy.order()
	for _, b := range m.tree.branches {
		for _, other := range b.nodes {
			switch {
			case other.parent == n:
				m.t.Fatalf("a node with a child is evicted")
			case other != n.parent && m.isLeaf(other) && order(other, n) <= 0:
				m.t.Fatalf("evicted %+v before %+v", n, other)
			}
		}
	}
	if n.locks > 0 {
		m.t.Fatalf("a node that is used is evicted")
	}
	lora := ""
	for name, b := range m.tree.branches {
		if b == n.branch {
			lora = name
		}
	}
	var hashes []blockhash.Digest
	for up := n; !up.isRoot(); up = up.parent {
		var own []blockhash.Digest
		for _, p := range up.pages {
			own = append(own, p.hash)
		}
		hashes = append(own, hashes...)
	}
	for i := n.depth; i < n.end(); i++ {
		key := fmt.Sprint(lora, hashes[:i+1])
		if !m.cached[key] {
			m.t.Fatalf("page %d was not cached", i)
		}
		delete(m.cached, key)
		if m.copies[hashes[i]]--; m.copies[hashes[i]] == 0 {
			delete(m.copies, hashes[i])
		}
	}
}

// isLeaf asks the nodes, not the counters.
func (m *treeModel) isLeaf(n *node) bool {
	for _, other := range n.branch.nodes {
		if other.parent == n {
			return false
		}
	}
	return n.locks == 0
}

// check: links, counters and the list of leaves agree, what is held is there, and what was told is resident.
func (m *treeModel) check(t *rapid.T) {
	pages, evictable, leaves := 0, 0, 0
	copies := map[blockhash.Digest]int{}
	for _, b := range m.tree.branches {
		for first, n := range b.nodes {
			if len(n.pages) == 0 || n.pages[0].hash != first || n.parent.end() != n.depth || n.branch != b {
				t.Fatalf("node %+v is linked wrongly", n)
			}
			pages += len(n.pages)
			if n.locks == 0 {
				evictable += len(n.pages)
			}
			if m.isLeaf(n) != (n.slot != notLeaf) {
				t.Fatalf("leaf: %v, node %+v", m.isLeaf(n), n)
			}
			if n.slot != notLeaf {
				leaves++
			}
			for _, p := range n.pages {
				copies[p.hash]++
			}
		}
	}
	if pages != m.tree.pages || evictable != m.tree.evictable || leaves != len(m.tree.leaves.heap) || pages != len(m.cached) {
		t.Fatalf("%d pages of %d and %d, %d evictable of %d, %d leaves of %d",
			m.tree.pages, pages, len(m.cached), m.tree.evictable, evictable, len(m.tree.leaves.heap), leaves)
	}
	if fmt.Sprint(copies) != fmt.Sprint(m.copies) {
		t.Fatalf("resident %v, told %v", copies, m.copies)
	}
	for _, h := range m.held {
		for _, p := range h.prefix {
			if !m.cached[p] {
				t.Fatalf("a page that is held was evicted")
			}
		}
	}
}
