package crtc

import (
	"slices"
	"testing"

	"fleetdrill/gateway/index"
	"fleetdrill/gateway/index/indextest"
	"fleetdrill/gateway/index/maptree"
)

// Counts, memberships and what every event reports equal the reference; scores are never above it. Few of the
// random histories leave a hole that tells; TestHolesAreUnderstated has those that do.
func TestNeverAboveTheReference(t *testing.T) {
	low, asked := indextest.Understating(t, func() index.Index { return New() })
	t.Logf("%d of %d scores are too low", low, asked)
}

// What the design gets wrong on holes is printed, and is never in a holder's favour. Without any, the histories have
// no holes, or the tree is exact and its page is wrong.
func TestHolesAreUnderstated(t *testing.T) {
	if s := indextest.Holes(t, func() index.Index { return New() }, func() index.Index { return maptree.New() }); s.High > 0 || s.Low == 0 {
		t.Errorf("%+v", s)
	}
}

// Engines that evict leaf first make no holes; then every score is right.
func TestFollowsEngines(t *testing.T) {
	indextest.Engines(t, func() index.Index { return New() })
}

// A hole gives up what is behind it in the edge; storing over it gives back what was stored and no more.
func TestHoleAndHeal(t *testing.T) {
	ix := New()
	chain := []uint64{10, 11, 12, 13, 14, 15}
	names := []uint64{1, 2, 3, 4, 5, 6}
	ix.Store(0, 0, false, names, chain)
	ix.Remove(0, []uint64{3})
	score := func(want uint32) {
		t.Helper()
		if got := ix.Lookup(chain, nil)[0]; got != want {
			t.Fatalf("score %d, want %d", got, want)
		}
	}
	score(2)
	ix.Store(0, 2, true, []uint64{3}, []uint64{12})
	score(3) // the truth is 6
	ix.Store(0, 3, true, []uint64{4, 5, 6}, chain[3:])
	score(6)
	if ix.Count(0) != 6 {
		t.Fatalf("%d names", ix.Count(0))
	}
}

// Splits leave names behind, which find their blocks again.
func TestNamesFollowSplits(t *testing.T) {
	ix := New()
	chain := make([]uint64, 64)
	for i := range chain {
		chain[i] = uint64(100 + i)
	}
	names := indextest.Names(chain)
	ix.Store(0, 0, false, names, chain)
	for i, at := range []int{40, 20, 50, 10, 30} { // divergences that split what splits have made
		other := append(slices.Clone(chain[:at]), uint64(i))
		ix.Store(1, 0, false, indextest.Names(other), other)
	}
	ix.Each(0, func(m index.Membership) bool {
		if m.Content != chain[m.Position] || names[m.Position] != m.Hash {
			t.Errorf("%+v", m)
		}
		return true
	})
	for n := 63; n >= 0; n-- {
		if removed, _ := ix.Remove(0, names[n:n+1]); removed != 1 || ix.Lookup(chain, nil)[0] != uint32(n) {
			t.Fatalf("block %d: %d removed, score %v", n, removed, ix.Lookup(chain, nil))
		}
	}
}

// 16 lanes write and 4 readers read: what is counted and held equals the reference, scores never exceed it.
func TestLanesAndReaders(t *testing.T) {
	indextest.Lanes(t, 10, 200, true, func() index.Index { return New() })
}

func TestHostile(t *testing.T) {
	indextest.Hostile(t, true, func() index.Index { return New() })
}
