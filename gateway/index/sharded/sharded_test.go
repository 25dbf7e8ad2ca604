package sharded

import (
	"testing"

	"fleetdrill/gateway/index"
	"fleetdrill/gateway/index/chain"
	"fleetdrill/gateway/index/indextest"
	"fleetdrill/gateway/index/maptree"
)

func TestEqualsTheReference(t *testing.T) {
	for n := 1; n <= 3; n++ {
		indextest.Index(t, func() index.Index { return New(n, func() index.Index { return chain.New() }) })
	}
	indextest.Index(t, func() index.Index { return New(2, func() index.Index { return maptree.New() }) })
}

func TestEqualsTheReferenceWithCopies(t *testing.T) {
	indextest.Residency(t, func() index.Index { return New(2, func() index.Index { return chain.New() }) })
}

// The result is as long as the highest holder id + 1, wherever it is kept, and costs no allocation once it
// has grown.
func TestLengthAndAllocations(t *testing.T) {
	ix := New(2, func() index.Index { return chain.New() })
	ix.Store(6, 0, false, []uint64{1}, []uint64{10})
	ix.Store(3, 0, false, []uint64{1, 2}, []uint64{10, 20})
	wanted := []uint64{10, 20}
	scores := ix.Lookup(wanted, nil)
	if len(scores) != 7 || scores[6] != 1 || scores[3] != 2 {
		t.Fatalf("scores %v", scores)
	}
	if n := testing.AllocsPerRun(100, func() { scores = ix.Lookup(wanted, scores) }); n != 0 {
		t.Fatalf("%v allocations per lookup", n)
	}
}

func TestFollowsEngines(t *testing.T) {
	indextest.Engines(t, func() index.Index { return New(2, func() index.Index { return chain.New() }) })
}

func TestLanesAndReaders(t *testing.T) {
	indextest.Lanes(t, 10, 150, false, func() index.Index { return New(2, func() index.Index { return chain.New() }) })
}

func TestHostile(t *testing.T) {
	indextest.Hostile(t, false, func() index.Index { return New(3, func() index.Index { return chain.New() }) })
}

func TestCorpusAgainstTheReference(t *testing.T) {
	indextest.Corpus(t, New(2, func() index.Index { return chain.New() }), 3, 30_000)
}
