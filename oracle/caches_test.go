package oracle

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// naive is a cache that is slow and obviously right: the prefixes it holds as text, oldest first.
type naive struct {
	capacity int
	prefixes []string
}

func (n *naive) serve(chain []uint64) (match int) {
	for match < len(chain) && slices.Contains(n.prefixes, fmt.Sprint(chain[:match+1])) {
		match++
	}
	for i := len(chain); i > 0; i-- {
		prefix := fmt.Sprint(chain[:i])
		n.prefixes = slices.DeleteFunc(n.prefixes, func(p string) bool { return p == prefix })
		n.prefixes = append(n.prefixes, prefix)
	}
	n.prefixes = n.prefixes[max(0, len(n.prefixes)-n.capacity):]
	return match
}

// chains draws prompts that share prefixes now and then, and contents behind different prefixes.
func chains(t *rapid.T) [][]uint64 {
	content := rapid.Uint64Range(0, 3)
	return rapid.SliceOfN(rapid.SliceOfN(content, 0, 8), 1, 60).Draw(t, "chains")
}

func TestPooledIsTheNaiveOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.IntRange(0, 40).Draw(t, "capacity")
		pool, want := NewPooled(capacity), &naive{capacity: capacity}
		for i, chain := range chains(t) {
			if got, want := pool.Serve(chain), want.serve(chain[:min(len(chain), capacity)]); got != want {
				t.Fatalf("prompt %d %v: match %d, want %d", i, chain, got, want)
			}
			if pool.Blocks() != len(want.prefixes) {
				t.Fatalf("prompt %d: %d blocks held, want %d", i, pool.Blocks(), len(want.prefixes))
			}
		}
	})
}

// Keeping only the first blocks of a long prompt is the same as using all of them from the last to the
// first: the rest would be evicted at once.
func TestTheTailOfALongPromptWouldBeEvicted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.IntRange(1, 5).Draw(t, "capacity")
		whole, head := &naive{capacity: capacity}, &naive{capacity: capacity}
		for _, chain := range chains(t) {
			whole.serve(chain)
			head.serve(chain[:min(len(chain), capacity)])
			if d := cmp.Diff(whole.prefixes, head.prefixes); d != "" {
				t.Fatalf("after %v (-whole +head)\n%s", chain, d)
			}
		}
	})
}

func TestUnboundedIsAPoolWithoutEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var cache Unbounded
		pool := NewPooled(1 << 20)
		for i, chain := range chains(t) {
			before, served := cache.Match(chain), cache.Serve(chain)
			if want := pool.Serve(chain); served != want || before != want {
				t.Fatalf("prompt %d %v: matched %d, served %d, the pool %d", i, chain, before, served, want)
			}
			if got := cache.Match(chain); got != len(chain) {
				t.Fatalf("prompt %d: %d of %d blocks held once served", i, got, len(chain))
			}
		}
		if cache.Blocks() != pool.Blocks() {
			t.Fatalf("%d blocks, the pool %d", cache.Blocks(), pool.Blocks())
		}
	})
}

// A larger LRU cache holds all that a smaller one does.
func TestMoreMemoryNeverReusesLess(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		small := rapid.IntRange(0, 20).Draw(t, "small")
		pools := []*Pooled{NewPooled(small), NewPooled(small + rapid.IntRange(0, 20).Draw(t, "more"))}
		for i, chain := range chains(t) {
			if a, b := pools[0].Serve(chain), pools[1].Serve(chain); a > b {
				t.Fatalf("prompt %d %v: %d blocks with less memory, %d with more", i, chain, a, b)
			}
		}
	})
}

// The story of one pool of four blocks.
func TestPooledByHand(t *testing.T) {
	p := NewPooled(4)
	for _, step := range []struct {
		chain []uint64
		match int
		why   string
	}{
		{[]uint64{1, 2, 3}, 0, "empty"},
		{[]uint64{1, 2, 9}, 2, "two blocks shared; full now: 1, 1-2, 1-2-9, 1-2-3"},
		{[]uint64{7}, 0, "takes the place of 1-2-3, the oldest"},
		{[]uint64{1, 2, 3}, 2, "1-2-3 is gone and takes the place of 1-2-9"},
		{[]uint64{2, 3}, 0, "the contents are held, but behind block 1"},
		{[]uint64{1, 2, 3}, 2, "a tail goes before its head"},
		{[]uint64{5, 6, 7, 8, 9}, 0, "longer than the pool"},
		{[]uint64{5, 6, 7, 8, 9}, 4, "its first blocks stayed"},
	} {
		if got := p.Serve(step.chain); got != step.match {
			t.Fatalf("%v: match %d, want %d: %s", step.chain, got, step.match, step.why)
		}
	}
}

// BenchmarkPooled serves prompts of 750 blocks, 12,000 tokens at a block size of 16.
func BenchmarkPooled(b *testing.B) {
	p := NewPooled(100_000)
	chain := make([]uint64, 750)
	n := uint64(0)
	for b.Loop() {
		for i := range chain {
			chain[i] = n/4*1000 + uint64(i) // every prompt four times
		}
		n++
		p.Serve(chain)
	}
}
