package maptree

import (
	"math/rand/v2"
	"sync"
	"testing"

	"fleetdrill/gateway/index"
	"fleetdrill/gateway/index/indextest"
)

func TestEqualsTheReference(t *testing.T) {
	indextest.Index(t, func() index.Index { return New() })
}

func TestEqualsTheReferenceWithCopies(t *testing.T) {
	indextest.Residency(t, func() index.Index { return New() })
}

func TestLanesAndReaders(t *testing.T) {
	indextest.Lanes(t, 4, 150, false, func() index.Index { return New() })
}

func TestFollowsEngines(t *testing.T) {
	indextest.Engines(t, func() index.Index { return New() })
}

// Two names for one block are one block, and taking one away leaves it.
func TestTwins(t *testing.T) {
	ix := New()
	ix.Store(0, 0, false, []uint64{1, 2}, []uint64{10, 11})
	ix.Store(0, 1, true, []uint64{3}, []uint64{11})
	ix.Remove(0, []uint64{2})
	if got := ix.Lookup([]uint64{10, 11}, nil)[0]; got != 2 {
		t.Fatalf("score %d with one of two names left, want 2", got)
	}
	ix.Remove(0, []uint64{3})
	if got := ix.Lookup([]uint64{10, 11}, nil)[0]; got != 1 {
		t.Fatalf("score %d with no name left, want 1", got)
	}
}

// Events come from one goroutine per holder, lookups from anywhere; a score is one that the holder had.
func TestConcurrentHolders(t *testing.T) {
	const workers, rounds, depth = 8, 300, 12
	ix := New()
	chain := make([]uint64, depth)
	for i := range chain {
		chain[i] = uint64(100 + i)
	}
	var wg sync.WaitGroup
	for w := range index.Holder(workers) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(w)))
			for range rounds {
				n := 1 + rng.IntN(depth)
				names := make([]uint64, n)
				for i := range names {
					names[i] = uint64(w)<<32 | uint64(i)
				}
				ix.Store(w, 0, false, names, chain[:n])
				ix.Remove(w, names[rng.IntN(n):])
			}
			ix.Drop(w)
		})
	}
	wg.Go(func() {
		var scores index.Scores
		for range rounds {
			scores = ix.Lookup(chain, scores)
			for w, s := range scores {
				if s > depth {
					t.Errorf("holder %d scores %d of %d", w, s, depth)
				}
			}
		}
	})
	wg.Wait()
	if s := ix.Stats(); s != (index.Stats{}) {
		t.Fatalf("with every holder dropped, %+v is left", s)
	}
}

const benchHolders, benchDepth = 128, 268

// benchChains are chains of 268 blocks that share their first 64.
func benchChains(n int) [][]uint64 {
	rng := rand.New(rand.NewPCG(1, 2))
	head := make([]uint64, 64)
	for i := range head {
		head[i] = rng.Uint64()
	}
	out := make([][]uint64, n)
	for i := range out {
		out[i] = append([]uint64(nil), head...)
		for len(out[i]) < benchDepth {
			out[i] = append(out[i], rng.Uint64())
		}
	}
	return out
}

// BenchmarkStoreRemove stores and removes whole chains; a block op is one stored or removed block.
func BenchmarkStoreRemove(b *testing.B) {
	ix := New()
	chains := benchChains(64)
	i := 0
	for b.Loop() {
		c := chains[i%len(chains)]
		names := append([]uint64(nil), c...)
		ix.Store(index.Holder(i%benchHolders), 0, false, names, c)
		ix.Remove(index.Holder(i%benchHolders), names)
		i++
	}
	b.ReportMetric(float64(2*benchDepth*b.N)/b.Elapsed().Seconds(), "blockops/s")
}

// BenchmarkLookup looks up chains whose first 64 blocks every holder has.
func BenchmarkLookup(b *testing.B) {
	ix := New()
	chains := benchChains(512)
	for i, c := range chains {
		ix.Store(index.Holder(i%benchHolders), 0, false, append([]uint64(nil), c...), c)
	}
	var scores index.Scores
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		scores = ix.Lookup(chains[i%len(chains)], scores)
		i++
	}
}

func TestHostile(t *testing.T) {
	indextest.Hostile(t, false, func() index.Index { return New() })
}

func TestCorpusAgainstTheReference(t *testing.T) {
	indextest.Corpus(t, New(), 3, 30_000)
}
