package chain

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"fleetdrill/gateway/index"
	"fleetdrill/gateway/index/indextest"
	"fleetdrill/gateway/index/sharded"
	"fleetdrill/internal/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// 16 lanes write, 4 readers read, workers are replaced: at the end each of 20 indexes equals the reference.
func TestLanesAndReaders(t *testing.T) {
	var made []*Index
	indextest.Lanes(t, 20, 150, false, func() index.Index {
		made = append(made, New())
		return made[len(made)-1]
	})
	for seed, ix := range made {
		if _, err := ix.check(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// The same with few indexes and long histories.
func TestLongLanes(t *testing.T) {
	steps := 4000
	if testing.Short() || indextest.RaceEnabled {
		steps = 300
	}
	indextest.Lanes(t, 2, steps, false, func() index.Index { return New() })
}

// 400 runs in which four writers meet on fresh chains, on one index and on two shards.
func TestConcurrentSplits(t *testing.T) {
	runs := 400
	if indextest.RaceEnabled {
		runs = 100
	}
	indextest.ConcurrentSplits(t, runs, func() index.Index { return New() })
	indextest.ConcurrentSplits(t, runs, func() index.Index {
		return sharded.New(2, func() index.Index { return New() })
	})
}

// Three holders pass one chain on: the next has all of it before the one before gives it up. So at every
// moment one of them or two have all of it and the others none, and a lookup that mixed two moments would
// show. Other holders meanwhile leave the chain at every depth, so that it lies in many runs, and keep its
// runs changing.
func TestLookupsAreOfOneMoment(t *testing.T) {
	const depth, rounds = 40, 5_000
	ix := New()
	chain := make([]uint64, depth)
	for i := range chain {
		chain[i] = uint64(i+1) * golden
	}
	names := func(h index.Holder) []uint64 {
		out := make([]uint64, depth)
		for i := range out {
			out[i] = uint64(h)<<32 | uint64(i+1)
		}
		return out
	}
	// Building the chain from pieces that two holders share makes a run of each piece.
	for n := 8; n <= depth; n += 8 {
		for h := index.Holder(3); h < 5; h++ {
			ix.Store(h, 0, false, names(h)[:n], chain[:n])
		}
	}
	ix.Store(0, 0, false, names(0), chain)
	var writers, readers sync.WaitGroup
	var stop atomic.Bool
	writers.Go(func() {
		for i := range rounds {
			ix.Store(index.Holder((i+1)%3), 0, false, names(index.Holder((i+1)%3)), chain)
			if h := index.Holder(i % 3); i%7 == 0 {
				ix.Clear(h)
			} else {
				ix.Remove(h, names(h))
			}
		}
		stop.Store(true)
	})
	writers.Go(func() {
		rng := rand.New(rand.NewPCG(5, 5))
		for !stop.Load() {
			h := index.Holder(5 + rng.IntN(3))
			n := 1 + rng.IntN(depth-1)
			ix.Store(h, 0, false, append(names(h)[:n:n], rng.Uint64()), append(chain[:n:n], rng.Uint64()))
			if rng.IntN(4) == 0 {
				ix.Clear(h)
			}
		}
	})
	for range 2 {
		readers.Go(func() {
			var scores index.Scores
			for !stop.Load() {
				scores = ix.Lookup(chain, scores)
				have := 0
				for h := range min(3, len(scores)) {
					if scores[h] == depth {
						have++
					} else if scores[h] != 0 {
						t.Errorf("holder %d scores %d of %d: half an event", h, scores[h], depth)
					}
				}
				if have != 1 && have != 2 {
					t.Errorf("%d of 3 holders have the chain: %v", have, scores)
				}
			}
		})
	}
	writers.Wait()
	readers.Wait()
	if u, err := ix.check(); err != nil || u.runs < 5 {
		t.Fatalf("%+v, %v", u, err)
	}
}

// Whatever is written between any two steps of a lookup: what it then takes for right is what a lookup
// before, between or after those events gave. This is the test that can fail on one core.
func TestInterruptedLookups(t *testing.T) {
	const holders = 5
	right, refused := 0, 0
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 17))
		chains := indextest.Forest(rng, 12, 5)
		ix := New()
		var lanes []*indextest.Lane
		for h := range index.Holder(holders) {
			ix.Store(h, 0, false, nil, nil)
			lanes = append(lanes, indextest.NewLane(h, chains, seed))
		}
		event := func() {
			if err := lanes[rng.IntN(holders)].Event(ix); err != nil {
				t.Fatal(err)
			}
		}
		for range 100 {
			event()
		}
		set := alive{make([]uint64, 1), make([]uint64, 1)}
		for range 300 {
			chain, scores := chains[rng.IntN(len(chains))], make(index.Scores, holders)
			// Dropped holders stay within the length of scores.
			states := []index.Scores{ix.Lookup(chain, nil)}
			var p path
			ok := ix.walk(chain, scores, set, func(v visit) bool {
				if rng.IntN(3) == 0 {
					event()
					states = append(states, ix.Lookup(chain, nil))
				}
				return p.add(v)
			})
			if !ok || !p.unchanged() {
				refused++
				continue
			}
			if len(states) > 1 {
				right++
			}
			if !slices.ContainsFunc(states, func(s index.Scores) bool { return slices.Equal(s, scores) }) {
				t.Fatalf("seed %d: scores %v, at no time %v", seed, scores, states)
			}
		}
	}
	if right < 100 || refused < 100 {
		t.Errorf("%d interrupted lookups were right, %d refused: too few to tell", right, refused)
	}
}

// A holder id that was given up 10,000 times carries nothing over.
func TestHolderIdsAreReused(t *testing.T) {
	ix := New()
	chains := indextest.Forest(rand.New(rand.NewPCG(3, 3)), 20, 10)
	keep := indextest.NewLane(1, chains, 1)
	for range 50 {
		if err := keep.Event(ix); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 10_000 {
		l := indextest.NewLane(0, chains, uint64(i))
		for range 3 {
			if err := l.Event(ix); err != nil {
				t.Fatal(err)
			}
		}
		if i%100 == 0 {
			if err := l.Compare(ix); err != nil {
				t.Fatal(err)
			}
		}
		ix.Drop(0)
	}
	if err := keep.Compare(ix); err != nil {
		t.Fatal(err)
	}
	u, err := ix.check()
	if err != nil {
		t.Fatal(err)
	}
	if u.total != chunkWords {
		t.Fatalf("%d words for a few blocks", u.total)
	}
}
