package indextest

import (
	"math/rand/v2"
	"slices"
	"testing"

	"fleetdrill/gateway/index"
)

// Hostile feeds an index what no engine should send: it is counted or reported, no score is wrong (of one that
// understates: none is too high), nothing breaks.
func Hostile(t *testing.T, understates bool, make func() index.Index) {
	t.Run("holder out of range", func(t *testing.T) { outOfRange(t, make()) })
	t.Run("names", func(t *testing.T) { strangeNames(t, make()) })
	t.Run("long chain", func(t *testing.T) { longChain(t, make()) })
	t.Run("ids come and go", func(t *testing.T) { recycle(t, understates, make()) })
}

func outOfRange(t *testing.T, ix index.Index) {
	ix.Store(1, 0, false, []uint64{1, 2}, []uint64{10, 11})
	for _, h := range []index.Holder{index.MaxHolders, 1<<32 - 1} {
		if res := ix.Store(h, 0, false, []uint64{1, 2}, []uint64{10, 11}); res.Refused != 2 || res.Stored != 0 {
			t.Errorf("holder %d stored %+v", h, res)
		}
		if removed, unknown := ix.Remove(h, []uint64{1}); removed != 0 || unknown != 1 {
			t.Errorf("holder %d: %d removed, %d unknown", h, removed, unknown)
		}
		ix.Clear(h)
		ix.Drop(h)
		ix.Each(h, func(m index.Membership) bool { t.Errorf("holder %d has %+v", h, m); return true })
		if n := ix.Count(h); n != 0 {
			t.Errorf("holder %d has %d", h, n)
		}
	}
	if s := ix.Stats(); s.Refused != 4 || s.Memberships != 2 || s.Holders != 1 {
		t.Errorf("%+v", s)
	}
	if got := ix.Lookup([]uint64{10, 11}, nil); !slices.Equal(got, index.Scores{0, 2}) {
		t.Errorf("scores %v", got)
	}
}

func strangeNames(t *testing.T, ix index.Index) {
	if res := ix.Store(0, 77, true, []uint64{1}, []uint64{10}); !res.UnknownParent || res.Stored != 0 {
		t.Errorf("under a parent that nobody has: %+v", res)
	}
	ix.Store(0, 0, false, []uint64{1, 2, 3}, []uint64{10, 11, 12})
	if res := ix.Store(1, 2, true, []uint64{9}, []uint64{12}); !res.UnknownParent {
		t.Errorf("under a parent that another holder has: %+v", res)
	}
	if removed, unknown := ix.Remove(1, []uint64{1, 2}); removed != 0 || unknown != 2 {
		t.Errorf("another's hashes: %d removed, %d unknown", removed, unknown)
	}
	if removed, unknown := ix.Remove(0, []uint64{3, 3, 99}); removed != 1 || unknown != 2 {
		t.Errorf("one twice, one unknown: %d removed, %d unknown", removed, unknown)
	}
	// One hash for two blocks of a store: the later place counts, and the chain has a hole at the earlier.
	if res := ix.Store(1, 0, false, []uint64{5, 6, 5}, []uint64{10, 11, 12}); res.Stored != 2 || res.Moved != 1 {
		t.Errorf("a hash twice in a store: %+v", res)
	}
	if got := ix.Lookup([]uint64{10, 11, 12}, nil); !slices.Equal(got, index.Scores{2, 0}) {
		t.Errorf("scores %v", got)
	}
	// Empty stores are nothing, whatever their parent.
	if res := ix.Store(0, 1, true, nil, nil); res.Stored+res.Moved+res.Refused > 0 || res.UnknownParent {
		t.Errorf("an empty store: %+v", res)
	}
	if got := ix.Lookup(nil, nil); !slices.Equal(got, index.Scores{0, 0}) {
		t.Errorf("scores for no blocks %v", got)
	}
}

// longChain is longer than any context window: 2^18 blocks. Scores and positions are of 32 bits, which no
// chain can fill, because each of its blocks takes a word of memory of which there are as many.
func longChain(t *testing.T, ix index.Index) {
	chain := make([]uint64, 1<<18)
	for i := range chain {
		chain[i] = uint64(i)*0x9e3779b97f4a7c15 + 1
	}
	names := Names(chain)
	ix.Store(0, 0, false, names[:1<<17], chain[:1<<17])
	ix.Store(0, names[1<<17-1], true, names[1<<17:], chain[1<<17:])
	ix.Store(1, 0, false, names[:300], chain[:300])
	if got := ix.Lookup(append(slices.Clone(chain), 5), nil); !slices.Equal(got, index.Scores{1 << 18, 300}) {
		t.Errorf("scores %v", got)
	}
	ix.Remove(0, []uint64{names[200_000]})
	if got := ix.Lookup(chain, nil); !slices.Equal(got, index.Scores{200_000, 300}) {
		t.Errorf("scores %v behind a hole", got)
	}
	ix.Drop(0)
	ix.Drop(1)
	if s := ix.Stats(); s != (index.Stats{}) {
		t.Errorf("%+v is left", s)
	}
}

// recycle gives a holder id up 10,000 times, beside a holder that stays.
func recycle(t *testing.T, understates bool, ix index.Index) {
	var under *understated
	if understates {
		under = &understated{}
	}
	chains := Forest(rand.New(rand.NewPCG(3, 3)), 20, 10)
	keep := NewLane(1, chains, 1)
	for range 50 {
		if err := keep.Event(ix); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 10_000 {
		l := NewLane(0, chains, uint64(i))
		for range 3 {
			if err := l.Event(ix); err != nil {
				t.Fatal(err)
			}
		}
		if i%500 == 0 {
			if err := l.compare(ix, under); err != nil {
				t.Fatal(err)
			}
		}
		ix.Drop(0)
	}
	if err := keep.compare(ix, under); err != nil {
		t.Fatal(err)
	}
}
