package chain

import (
	"math/rand/v2"
	"slices"
	"testing"

	"fleetdrill/gateway/index"
	"fleetdrill/gateway/index/indextest"
	"fleetdrill/internal/tokens"
	"fleetdrill/oracle"
)

// boundedFleet is holders that only store, into an index with a bound, and what they stored.
type boundedFleet struct {
	*testing.T
	x         *Index
	residency *index.Residency
	ref       *oracle.Reference
	rng       *rand.Rand
	chains    [][]uint64
}

const boundHolders, bound = 8, 256 << 10

func newBoundedFleet(t *testing.T) *boundedFleet {
	f := &boundedFleet{T: t, x: New(), ref: oracle.NewReference(8), rng: rand.New(rand.NewPCG(4, 4))}
	f.x.SetMaxBytes(bound)
	f.residency = index.NewResidency(f.x)
	f.chains = indextest.Forest(f.rng, 2000, 40)
	return f
}

// store stores the beginning of a chain, and again what of it was given up.
func (f *boundedFleet) store(h index.Holder, chain []uint64) {
	names := indextest.Names(chain)
	f.residency.Store(h, 0, false, names, chain)
	f.ref.Store(uint32(h), 0, false, names, chain)
}

// agree makes the reference give up what the index gave up, and then compares everything.
func (f *boundedFleet) agree() {
	f.Helper()
	for h := range index.Holder(boundHolders) {
		var digest uint64
		got := map[uint64]bool{}
		f.x.Each(h, func(m index.Membership) bool {
			got[m.Hash] = true
			digest += tokens.DigestTerm(m.Hash)
			return true
		})
		for hash := range f.ref.Blocks(uint32(h)) {
			for !got[hash] && f.ref.Chain(uint32(h), hash) != nil { // all its copies
				f.ref.Remove(uint32(h), []uint64{hash})
			}
		}
		if n := f.ref.Count(uint32(h)); n != len(got) {
			f.Fatalf("holder %d has %d, of which %d are right", h, len(got), n)
		}
		if d := f.residency.Digest(h); d != digest {
			f.Fatalf("digest of %d is %x, want %x", h, d, digest)
		}
	}
	for range 100 {
		chain := f.chains[f.rng.IntN(len(f.chains))]
		scores := f.x.Lookup(chain, nil)
		for h := range scores {
			if want := f.ref.Score(uint32(h), chain); int(scores[h]) != want {
				f.Fatalf("score of %d is %d, want %d", h, scores[h], want)
			}
		}
	}
	if _, err := f.x.check(); err != nil {
		f.Fatal(err)
	}
}

// At the bound the coldest runs go, counted per holder; what stays is exact, and what was just stored stays.
func TestBoundShedsTheColdest(t *testing.T) {
	f := newBoundedFleet(t)
	hot := f.chains[0]
	for i := range 30_000 {
		if i%1024 == 0 {
			f.store(3, hot)
		}
		c := f.chains[f.rng.IntN(len(f.chains))]
		f.store(index.Holder(f.rng.IntN(boundHolders)), c)
		if got := f.x.Bytes(); got > bound {
			t.Fatalf("store %d: %d bytes, bound %d", i, got, bound)
		}
		if got := f.x.Lookup(hot, nil); i > 2048 && int(got[3]) != len(hot) {
			t.Fatalf("store %d: the chain that comes all the time went: %v", i, got)
		}
		if i%3000 == 2999 {
			f.agree()
		}
	}
	var shed int64
	for h := range index.Holder(boundHolders) {
		shed += f.residency.Shed(h)
	}
	if s := f.x.Stats(); shed == 0 || s.Shed != shed || s.Refused != 0 {
		t.Errorf("%+v, %d shed by holder", s, shed)
	}
	// Arrays are used again by size, so the free lists hold something; not another index.
	if u := f.x.Usage(); u.Bytes-int64(len(*f.x.runs.slabs.Load()))*slabRuns*runBytes > 3*bound+8*chunkWords {
		t.Errorf("%+v for a bound of %d", u, bound)
	}
}

// A chain is as warm as its end: to take the beginning of one that is in use would be a hole before all of it.
func TestBoundTakesEndsFirst(t *testing.T) {
	x := New()
	chain := make([]uint64, 3*maxRun)
	for i := range chain {
		chain[i] = uint64(i + 1)
	}
	names := indextest.Names(chain)
	x.Store(0, 0, false, names[:maxRun], chain[:maxRun])
	x.stores += 1 << 20
	x.Store(0, names[maxRun-1], true, names[maxRun:2*maxRun], chain[maxRun:2*maxRun])
	x.Store(0, 0, false, []uint64{1}, []uint64{99})
	x.stores += 1 << 20
	x.Store(0, names[2*maxRun-1], true, names[2*maxRun:], chain[2*maxRun:])
	x.SetMaxBytes(x.Bytes())
	if gone := x.Cold().Take(0); !slices.Equal(gone, []uint64{1, names[2*maxRun]}) && !slices.Contains(gone, 1) {
		t.Errorf("%d names went, not that of the coldest chain", len(gone))
	}
	if got := x.Lookup(chain, nil)[0]; got < 2*maxRun {
		t.Errorf("score %d: the beginning went before the end", got)
	}
}

// With the arena full, stores are refused and counted, removals with holes go on, and what is held is exact.
func TestFullArenaRefuses(t *testing.T) {
	x := New()
	x.arena.limit = 3
	chains := indextest.Forest(rand.New(rand.NewPCG(2, 2)), 4000, 60)
	ref := oracle.NewReference(1)
	rng := rand.New(rand.NewPCG(6, 6))
	refused := 0
	for i := range 12_000 {
		h, c := index.Holder(rng.IntN(4)), chains[rng.IntN(len(chains))]
		names := indextest.Names(c)
		if i%3 == 2 {
			from := rng.IntN(len(c))
			list := names[from:min(len(c), from+3)]
			want, _ := ref.Remove(uint32(h), list)
			if got, _ := x.Remove(h, slices.Clone(list)); got != want {
				t.Fatalf("event %d: %d removed, want %d", i, got, want)
			}
			continue
		}
		if res := x.Store(h, 0, false, names, c); res.Refused > 0 {
			refused += res.Refused
		} else {
			ref.Store(uint32(h), 0, false, names, c)
		}
	}
	if s := x.Stats(); refused == 0 || s.Refused != int64(refused) || s.Shed > 0 {
		t.Fatalf("%+v, %d refused", s, refused)
	}
	if n := len(*x.arena.chunks.Load()); n > x.arena.limit {
		t.Fatalf("%d chunks", n)
	}
	for _, c := range chains[:200] {
		scores := x.Lookup(c, nil)
		for h := range scores {
			if want := ref.Score(uint32(h), c); int(scores[h]) != want {
				t.Fatalf("score of %d is %d, want %d", h, scores[h], want)
			}
		}
	}
	if _, err := x.check(); err != nil {
		t.Fatal(err)
	}
}

// With no memory even for a removal, the holder loses all of that run, which needs none; nothing else changes.
func TestForgettingNeedsNoMemory(t *testing.T) {
	x := New()
	chain := []uint64{10, 11, 12, 13, 14, 15}
	names := []uint64{1, 2, 3, 4, 5, 6}
	for h := range index.Holder(2) {
		x.Store(h, 0, false, names, chain)
	}
	x.Store(0, 3, true, []uint64{7}, []uint64{20})
	x.arena.limit = 0
	if removed, _ := x.Remove(0, []uint64{4}); removed != 1 {
		t.Fatalf("%d removed", removed)
	}
	if got := x.Lookup(chain, nil); !slices.Equal(got, index.Scores{0, 6}) {
		t.Errorf("scores %v", got)
	}
	if s := x.Stats(); s.Shed != 5 || x.Count(0) != 1 || x.Count(1) != 6 {
		t.Errorf("%+v, %d and %d names", s, x.Count(0), x.Count(1))
	}
	if _, err := x.check(); err != nil {
		t.Error(err)
	}
}

// The collector has nothing to scan in what grows with the blocks: words, runs and slots have no pointer.
func TestNothingToScan(t *testing.T) {
	for _, typ := range []any{uint64(0), run{}, slot{}} {
		if p := pointersIn(typ); p != "" {
			t.Errorf("%T has a pointer in %s", typ, p)
		}
	}
}
