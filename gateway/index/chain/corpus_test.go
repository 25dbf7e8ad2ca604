package chain

import (
	"math/rand/v2"
	"slices"
	"testing"

	"fleetdrill/gateway/index"
	"fleetdrill/gateway/index/indextest"
	"fleetdrill/gateway/index/maptree"
	"fleetdrill/gateway/index/sharded"
)

// Histories of 300,000 events over 16 holders, on one index and on two shards: what every event reports
// equals the reference, a score is compared every 16 events, everything at the end.
func TestCorpusAgainstTheReference(t *testing.T) {
	events := 300_000
	if testing.Short() || indextest.RaceEnabled {
		events = 10_000
	}
	for seed := range uint64(2) {
		for shards := 1; shards <= 2; shards++ {
			var parts []*Index
			ix := sharded.New(shards, func() index.Index {
				parts = append(parts, New())
				return parts[len(parts)-1]
			})
			indextest.Corpus(t, ix, seed, events)
			for _, part := range parts {
				if _, err := part.check(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// Long chains and 100 holders, beside the map tree: every score of every lookup, and as many places.
func TestCorpusAgainstTheMapTree(t *testing.T) {
	events := 30_000
	if testing.Short() || indextest.RaceEnabled {
		events = 1_000
	}
	rng := rand.New(rand.NewPCG(8, 8))
	chains := indextest.Forest(rng, 200, 150)
	x, tree := New(), maptree.New()
	all := make([][]uint64, len(chains))
	for i, c := range chains {
		all[i] = names(c)
	}
	var a, b index.Scores
	for i := range events {
		h, c := index.Holder(rng.IntN(100)), rng.IntN(len(chains))
		from, n := rng.IntN(len(chains[c])), len(chains[c])
		switch rng.IntN(8) {
		case 0: // a hole, or the tail
			list := all[c][from:min(n, from+1+rng.IntN(20))]
			x.Remove(h, slices.Clone(list))
			tree.Remove(h, slices.Clone(list))
		case 1, 2, 3:
			x.Remove(h, slices.Clone(all[c][from:]))
			tree.Remove(h, slices.Clone(all[c][from:]))
		default:
			x.Store(h, 0, false, all[c][:from+1], chains[c][:from+1])
			tree.Store(h, 0, false, all[c][:from+1], chains[c][:from+1])
		}
		if i%16 != 0 {
			continue
		}
		want := chains[rng.IntN(len(chains))]
		a, b = x.Lookup(want, a), tree.Lookup(want, b)
		if !slices.Equal(a, b) {
			t.Fatalf("event %d: scores %v, want %v", i, a, b)
		}
	}
	if _, err := x.check(); err != nil || x.Stats() != tree.Stats() {
		t.Fatalf("%+v, want %+v; %v", x.Stats(), tree.Stats(), err)
	}
}
