package chain

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"fleetdrill/gateway/index"
	"fleetdrill/oracle"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// forest makes chains that leave each other at many depths.
func forest(rng *rand.Rand, n, depth int) [][]uint64 {
	var out [][]uint64
	for range n {
		var c []uint64
		if len(out) > 0 && rng.IntN(4) > 0 {
			from := out[rng.IntN(len(out))]
			c = slices.Clone(from[:1+rng.IntN(len(from))])
		}
		for range 1 + rng.IntN(depth) {
			c = append(c, rng.Uint64())
		}
		out = append(out, c)
	}
	return out
}

// lane is the only writer of one holder and applies each event to a reference of its own too.
type lane struct {
	holder index.Holder
	rng    *rand.Rand
	ref    *oracle.Reference
	chains [][]uint64
	// names are this engine's hashes: names[c][i] for block i of chain c. Chains share names where they
	// share blocks, as engines do.
	names [][]uint64
	first []int // blocks of each chain that were ever stored
}

func newLane(h index.Holder, chains [][]uint64, seed uint64) *lane {
	l := &lane{holder: h, rng: rand.New(rand.NewPCG(seed, uint64(h))), ref: oracle.NewReference(1), chains: chains, first: make([]int, len(chains))}
	for _, c := range chains {
		state := uint64(h)
		names := make([]uint64, len(c))
		for i, content := range c {
			state = (state ^ content) * golden
			names[i] = state
		}
		l.names = append(l.names, names)
	}
	return l
}

// event applies one random event to ix and to the reference.
func (l *lane) event(ix index.Index) error {
	c := l.rng.IntN(len(l.chains))
	chain, names := l.chains[c], l.names[c]
	switch l.rng.IntN(40) {
	case 0:
		ix.Clear(l.holder)
		l.ref.Clear(uint32(l.holder))
	case 1:
		ix.Drop(l.holder)
		l.ref.Drop(uint32(l.holder))
	case 2: // one name moves to the front of another chain
		names = []uint64{names[l.rng.IntN(len(names))]}
		return l.store(ix, 0, false, names, l.chains[l.rng.IntN(len(l.chains))][:1])
	case 3, 4, 5, 6, 7, 8, 9, 10: // the tail goes
		return l.remove(ix, names[l.rng.IntN(len(names)):])
	case 11, 12: // a hole
		from := l.rng.IntN(len(names))
		return l.remove(ix, names[from:min(len(names), from+1+l.rng.IntN(3))])
	case 13, 14, 15, 16, 17: // more blocks under one that may be held
		from := l.rng.IntN(len(names))
		if from == 0 {
			break
		}
		return l.store(ix, names[from-1], true, names[from:], chain[from:])
	default:
		n := 1 + l.rng.IntN(len(chain))
		return l.store(ix, 0, false, names[:n], chain[:n])
	}
	return nil
}

func (l *lane) store(ix index.Index, parent uint64, hasParent bool, names, contents []uint64) error {
	want := l.ref.Store(uint32(l.holder), parent, hasParent, names, contents)
	got := ix.Store(l.holder, parent, hasParent, names, contents)
	if got.Stored != want.Stored || got.Duplicate != want.Duplicate || got.Moved != want.Moved || got.UnknownParent != want.UnknownParent {
		return fmt.Errorf("holder %d stored %+v, want %+v", l.holder, got, want)
	}
	return nil
}

func (l *lane) remove(ix index.Index, names []uint64) error {
	want, _ := l.ref.Remove(uint32(l.holder), names)
	if got, _ := ix.Remove(l.holder, slices.Clone(names)); got != want {
		return fmt.Errorf("holder %d lost %d, want %d", l.holder, got, want)
	}
	return nil
}

// compare checks every membership of the lane's holder and its score on every chain.
func (l *lane) compare(ix index.Index) error {
	got := map[uint64]oracle.Block{}
	ix.Each(l.holder, func(m index.Membership) bool {
		got[m.Hash] = oracle.Block{Hash: m.Hash, Position: m.Position, Content: m.Content}
		return true
	})
	if diff := cmp.Diff(l.ref.Blocks(uint32(l.holder)), got); diff != "" {
		return fmt.Errorf("memberships of %d (-want +got):\n%s", l.holder, diff)
	}
	if n := ix.Count(l.holder); n != len(got) {
		return fmt.Errorf("count of %d is %d, want %d", l.holder, n, len(got))
	}
	for _, c := range l.chains {
		scores := ix.Lookup(c, nil)
		score := 0
		if int(l.holder) < len(scores) {
			score = int(scores[l.holder])
		}
		if want := l.ref.Score(uint32(l.holder), c); score != want {
			return fmt.Errorf("score of %d is %d, want %d", l.holder, score, want)
		}
	}
	return nil
}

// 16 lanes write, 4 readers read, workers are replaced: at the end each of 20 indexes equals the reference.
func TestLanesAndReaders(t *testing.T) {
	for seed := range uint64(20) {
		ix := New()
		lanesAndReaders(t, ix, seed)
		if _, err := ix.check(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

func lanesAndReaders(t *testing.T, ix index.Index, seed uint64) {
	chains := forest(rand.New(rand.NewPCG(seed, 99)), 30, 12)
	var lanes [16]*lane
	var writers, readers sync.WaitGroup
	var stop atomic.Bool
	for i := range lanes {
		lanes[i] = newLane(index.Holder(i*5), chains, seed)
		writers.Go(func() {
			for step := range 150 {
				if step%97 == 96 {
					ix.Drop(lanes[i].holder)
					lanes[i].ref.Drop(uint32(lanes[i].holder))
				}
				if err := lanes[i].event(ix); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range 4 {
		readers.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			var scores index.Scores
			for !stop.Load() {
				c := chains[rng.IntN(len(chains))]
				scores = ix.Lookup(c, scores)
				for h, s := range scores {
					if int(s) > len(c) {
						t.Errorf("holder %d scores %d of %d", h, s, len(c))
					}
				}
			}
		})
	}
	writers.Wait()
	stop.Store(true)
	readers.Wait()
	for _, l := range lanes {
		if err := l.compare(ix); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
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
		chains := forest(rng, 12, 5)
		ix := New()
		var lanes []*lane
		for h := range index.Holder(holders) {
			ix.Store(h, 0, false, nil, nil)
			lanes = append(lanes, newLane(h, chains, seed))
		}
		event := func() {
			if err := lanes[rng.IntN(holders)].event(ix); err != nil {
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
	chains := forest(rand.New(rand.NewPCG(3, 3)), 20, 10)
	keep := newLane(1, chains, 1)
	for range 50 {
		if err := keep.event(ix); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 10_000 {
		l := newLane(0, chains, uint64(i))
		for range 3 {
			if err := l.event(ix); err != nil {
				t.Fatal(err)
			}
		}
		if i%100 == 0 {
			if err := l.compare(ix); err != nil {
				t.Fatal(err)
			}
		}
		ix.Drop(0)
	}
	if err := keep.compare(ix); err != nil {
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
