package indextest

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/google/go-cmp/cmp"

	"fleetdrill/gateway/index"
	"fleetdrill/oracle"
)

// Forest makes chains that leave each other at many depths.
func Forest(rng *rand.Rand, n, depth int) [][]uint64 {
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

// Lane is the only writer of one holder. It makes events and applies each to a reference of its own too.
type Lane struct {
	Holder index.Holder
	Chains [][]uint64
	rng    *rand.Rand
	ref    *oracle.Reference
	// names are this engine's hashes: names[c][i] for block i of chain c; twins are other hashes for the
	// same blocks. Chains share them where they share blocks, as engines do.
	names, twins [][]uint64
	// slid is, per chain, how far a window has moved along it.
	slid []int
	last func(index.Index) error
}

// NewLane makes the writer of h, whose events depend on seed and h only.
func NewLane(h index.Holder, chains [][]uint64, seed uint64) *Lane {
	l := &Lane{Holder: h, Chains: chains, rng: rand.New(rand.NewPCG(seed, uint64(h))),
		ref: oracle.NewReference(1), slid: make([]int, len(chains))}
	for _, c := range chains {
		l.names = append(l.names, namesFrom(uint64(h), c))
		l.twins = append(l.twins, namesFrom(uint64(h)+1<<32, c))
	}
	return l
}

// namesFrom are the engine hashes of a chain: each depends on all contents up to its block.
func namesFrom(state uint64, chain []uint64) []uint64 {
	out := make([]uint64, len(chain))
	for i, content := range chain {
		state = (state ^ content) * 0x9e3779b97f4a7c15
		out[i] = state
	}
	return out
}

// Event applies one random event to ix and to the reference, and reports what ix did not do as the
// reference. Whatever it was, ix counts as many memberships as the reference afterwards.
func (l *Lane) Event(ix index.Index) error {
	if err := l.draw()(ix); err != nil {
		return err
	}
	if got, want := ix.Count(l.Holder), l.ref.Count(uint32(l.Holder)); got != want {
		return fmt.Errorf("holder %d has %d names, want %d", l.Holder, got, want)
	}
	return nil
}

// draw is the next event. Most are what an engine does; the rest is what a feed with losses makes of it.
func (l *Lane) draw() func(index.Index) error {
	c := l.rng.IntN(len(l.Chains))
	chain, names := l.Chains[c], l.names[c]
	from := l.rng.IntN(len(names))
	switch l.rng.IntN(64) {
	case 0:
		return func(ix index.Index) error { ix.Clear(l.Holder); l.ref.Clear(uint32(l.Holder)); return nil }
	case 1:
		return l.Replace
	case 2, 3: // one name moves to the front of another chain
		other := l.Chains[l.rng.IntN(len(l.Chains))]
		return func(ix index.Index) error { return l.store(ix, 0, false, names[from:from+1], other[:1]) }
	case 4, 5: // a second name for each of some blocks, under either name of the parent
		return l.twin(c, from)
	case 6, 7, 8: // a window slides: its last block leaves, one more comes
		return l.slide(c)
	case 9, 10, 11, 12: // more blocks under one that may be gone, then the chain from the root instead
		return func(ix index.Index) error { return l.storeOrRoot(ix, c, from) }
	case 13, 14, 15, 16: // all of a chain is announced again
		return func(ix index.Index) error { return l.store(ix, 0, false, names, chain) }
	case 17, 18, 19, 20: // what came last comes again
		if l.last != nil {
			return l.last
		}
		return func(index.Index) error { return nil }
	case 21, 22, 23: // a hole, block 0 at times
		from = max(0, from-1)
		return l.remember(func(ix index.Index) error { return l.remove(ix, names[from:min(len(names), from+1+from%3)]) })
	case 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35: // the tail goes
		return l.remember(func(ix index.Index) error { return l.remove(ix, names[from:]) })
	case 36, 37, 38, 39, 40, 41, 42, 43: // more blocks under one that may be held
		return l.remember(func(ix index.Index) error {
			return l.store(ix, names[from], true, names[from+1:], chain[from+1:])
		})
	default:
		return l.remember(func(ix index.Index) error { return l.store(ix, 0, false, names[:from+1], chain[:from+1]) })
	}
}

func (l *Lane) remember(f func(index.Index) error) func(index.Index) error {
	l.last = f
	return f
}

// Replace gives the holder's id to a new worker, which has nothing.
func (l *Lane) Replace(ix index.Index) error {
	ix.Drop(l.Holder)
	l.ref.Drop(uint32(l.Holder))
	return nil
}

func (l *Lane) twin(c, from int) func(index.Index) error {
	to := min(len(l.twins[c]), from+1+l.rng.IntN(3))
	parents, take := l.names[c], l.rng.IntN(2) == 0
	if l.rng.IntN(2) == 0 {
		parents = l.twins[c]
	}
	return func(ix index.Index) error {
		if take {
			return l.remove(ix, l.twins[c][from:to])
		}
		if from == 0 {
			return l.store(ix, 0, false, l.twins[c][:to], l.Chains[c][:to])
		}
		return l.store(ix, parents[from-1], true, l.twins[c][from:to], l.Chains[c][from:to])
	}
}

// slide keeps at most three blocks of a chain, further on each time: a feed of a sliding window alone.
func (l *Lane) slide(c int) func(index.Index) error {
	at := l.slid[c]
	if l.slid[c]++; l.slid[c] == len(l.names[c]) {
		l.slid[c] = 0
	}
	return func(ix index.Index) error {
		var parent uint64
		if at > 0 {
			parent = l.names[c][at-1]
		}
		if err := l.store(ix, parent, at > 0, l.names[c][at:at+1], l.Chains[c][at:at+1]); err != nil || at < 3 {
			return err
		}
		return l.remove(ix, l.names[c][at-3:at-2])
	}
}

func (l *Lane) storeOrRoot(ix index.Index, c, from int) error {
	_, held := l.ref.Blocks(uint32(l.Holder))[l.names[c][from]]
	if err := l.store(ix, l.names[c][from], true, l.names[c][from+1:], l.Chains[c][from+1:]); err != nil || held {
		return err
	}
	return l.store(ix, 0, false, l.names[c], l.Chains[c])
}

func (l *Lane) store(ix index.Index, parent uint64, hasParent bool, names, contents []uint64) error {
	want := l.ref.Store(uint32(l.Holder), parent, hasParent, names, contents)
	got := ix.Store(l.Holder, parent, hasParent, names, contents)
	if got.Stored != want.Stored || got.Duplicate != want.Duplicate || got.Moved != want.Moved || got.UnknownParent != want.UnknownParent {
		return fmt.Errorf("holder %d stored %+v, want %+v", l.Holder, got, want)
	}
	return nil
}

func (l *Lane) remove(ix index.Index, names []uint64) error {
	want, _ := l.ref.Remove(uint32(l.Holder), names)
	if got, _ := ix.Remove(l.Holder, slices.Clone(names)); got != want {
		return fmt.Errorf("holder %d lost %d, want %d", l.Holder, got, want)
	}
	return nil
}

// Compare checks every membership of the holder and, for each chain, the five lookups: all of it, the first
// half, the middle replaced, the tail replaced, one block more.
func (l *Lane) Compare(ix index.Index) error { return l.compare(ix, nil) }

func (l *Lane) compare(ix index.Index, under *understated) error {
	got := map[uint64]oracle.Block{}
	ix.Each(l.Holder, func(m index.Membership) bool {
		got[m.Hash] = oracle.Block{Hash: m.Hash, Position: m.Position, Content: m.Content}
		return true
	})
	if diff := cmp.Diff(l.ref.Blocks(uint32(l.Holder)), got); diff != "" {
		return fmt.Errorf("memberships of %d (-want +got):\n%s", l.Holder, diff)
	}
	for _, c := range l.Chains {
		for _, asked := range fiveLookups(c) {
			if err := l.score(ix, asked, under); err != nil {
				return err
			}
		}
	}
	return nil
}

// fiveLookups are a chain and its neighbours.
func fiveLookups(c []uint64) [][]uint64 {
	n := len(c)
	out := [][]uint64{c, c[:n/2], slices.Clone(c), slices.Clone(c), append(slices.Clone(c), 100)}
	out[2][n/2] = 999
	out[3][n-1] = 999
	return out
}

// Score compares the holder's score for a chain with the reference.
func (l *Lane) Score(ix index.Index, chain []uint64) error { return l.score(ix, chain, nil) }

func (l *Lane) score(ix index.Index, chain []uint64, under *understated) error {
	scores, score := ix.Lookup(chain, nil), 0
	if int(l.Holder) < len(scores) {
		score = int(scores[l.Holder])
	}
	want := l.ref.Score(uint32(l.Holder), chain)
	if under != nil {
		if under.asked++; score < want {
			under.low++
			return nil
		}
	}
	if score != want {
		return fmt.Errorf("score of %d is %d, want %d", l.Holder, score, want)
	}
	return nil
}
