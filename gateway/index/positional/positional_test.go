package positional

import (
	"math/rand/v2"
	"slices"
	"testing"

	"fleetdrill/gateway/index"
	"fleetdrill/gateway/index/indextest"
	"fleetdrill/gateway/index/maptree"
)

func TestEqualsTheReference(t *testing.T) {
	indextest.Index(t, func() index.Index { return New() })
}

func TestEqualsTheReferenceWithCopies(t *testing.T) {
	indextest.Residency(t, func() index.Index { return New() })
}

// On histories with holes the jump search is exact with its check. What it gets wrong without is printed,
// because that is what the published design gets wrong, and must not be nothing.
func TestJumpsOverHoles(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	exact, trusting, truth := New(), New(), maptree.New()
	trusting.trusting = true
	chains, names := make([][]uint64, 20), make([][]uint64, 20)
	for i := range chains {
		for range 100 {
			chains[i], names[i] = append(chains[i], rng.Uint64()), append(names[i], rng.Uint64())
		}
	}
	asked, wrong := 0, 0
	var a, b, c index.Scores
	for range 4000 {
		h, n, from := index.Holder(rng.IntN(16)), rng.IntN(len(chains)), rng.IntN(100)
		for _, ix := range []index.Index{exact, trusting, truth} {
			if n%3 == 0 { // a hole in a chain
				ix.Remove(h, slices.Clone(names[n][from:min(100, from+5)]))
			} else {
				ix.Store(h, 0, false, names[n][:from+1], chains[n][:from+1])
			}
		}
		if n%3 == 0 { // and the chain again, at times, so that there is something to make holes in
			for _, ix := range []index.Index{exact, trusting, truth} {
				ix.Store(h, names[n][min(99, from+6)], true, names[n][min(99, from+7):], chains[n][min(99, from+7):])
				ix.Store(h, 0, false, names[n][:from/2+1], chains[n][:from/2+1])
			}
		}
		chain := chains[rng.IntN(len(chains))]
		a, b, c = exact.Lookup(chain, a), trusting.Lookup(chain, b), truth.Lookup(chain, c)
		if !slices.Equal(a, c) {
			t.Fatalf("scores %v, want %v", a, c)
		}
		for i := range c {
			if asked++; b[i] != c[i] {
				wrong++
			}
		}
	}
	t.Logf("without the check for orphans %d of %d scores are wrong", wrong, asked)
	if wrong == 0 {
		t.Error("the histories have no holes that a jump would miss")
	}
}

func TestFollowsEngines(t *testing.T) {
	indextest.Engines(t, func() index.Index { return New() })
}
