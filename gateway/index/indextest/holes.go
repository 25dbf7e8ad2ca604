package indextest

import (
	"math/rand/v2"
	"slices"
	"testing"

	"fleetdrill/gateway/index"
)

// Scored counts scores of a comparison: Asked, of which Low were below the truth and High above it.
type Scored struct{ Asked, Low, High int }

// holeWorkers are the numbers of holders of the hole corpus.
var holeWorkers = []int{16, 2, 64}

// Holes runs the hole corpus: per number of holders, 20,000 events of which more than one in twenty takes
// blocks out of the middle of what a holder has, and every 256 events a lookup of every chain. It counts the
// scores that differ from those of truth, an exact index, and fails if the corpus has too few holes to say anything.
func Holes(t *testing.T, make, truth func() index.Index) (total Scored) {
	t.Helper()
	events := 20_000
	if RaceEnabled {
		events = 4_000
	}
	for _, workers := range holeWorkers {
		c := &holeCorpus{T: t, rng: rand.New(rand.NewPCG(uint64(workers), 1)), index: make(), truth: truth()}
		c.grow()
		for i := range events {
			c.event(index.Holder(c.rng.IntN(workers)))
			if i%256 == 255 {
				c.compare(workers)
			}
		}
		t.Logf("%d holders, %d holes: %d of %d scores too low, %d too high", workers, c.holes, c.scored.Low, c.scored.Asked, c.scored.High)
		if !RaceEnabled && c.holes < events/20 {
			t.Errorf("only %d holes in %d events", c.holes, events)
		}
		total.Asked += c.scored.Asked
		total.Low += c.scored.Low
		total.High += c.scored.High
	}
	return total
}

type holeCorpus struct {
	*testing.T
	rng          *rand.Rand
	index, truth index.Index
	chains       [][]uint64
	holes        int
	scored       Scored
}

// grow makes chains of which many share a beginning with an earlier one. Engine hashes chain, as engines' do.
func (c *holeCorpus) grow() {
	for range 40 {
		var chain []uint64
		if len(c.chains) > 0 && c.rng.IntN(10) < 7 {
			from := c.chains[c.rng.IntN(len(c.chains))]
			chain = slices.Clone(from[:1+c.rng.IntN(len(from))])
		}
		for range 8 + c.rng.IntN(80) {
			chain = append(chain, c.rng.Uint64())
		}
		c.chains = append(c.chains, chain)
	}
}

// Names are engine hashes of a chain, as of an engine with seed 1.
func Names(chain []uint64) []uint64 { return namesFrom(1, chain) }

func (c *holeCorpus) event(h index.Holder) {
	chain := c.chains[c.rng.IntN(len(c.chains))]
	names := Names(chain)
	n := len(chain)
	switch from := c.rng.IntN(n); c.rng.IntN(10) {
	case 0, 1: // out of the middle, block 0 at times; what lies behind stays
		c.remove(h, names[from:min(n-1, from+1+c.rng.IntN(4))], true)
	case 2, 3: // the tail
		c.remove(h, names[from:], false)
	case 4: // more under a block that is perhaps still there
		c.store(h, names[from], true, names[min(n, from+1):], chain[min(n, from+1):])
	default:
		c.store(h, 0, false, names[:from+1], chain[:from+1])
	}
}

func (c *holeCorpus) store(h index.Holder, parent uint64, hasParent bool, names, contents []uint64) {
	a := c.index.Store(h, parent, hasParent, names, contents)
	b := c.truth.Store(h, parent, hasParent, names, contents)
	if a.Stored != b.Stored || a.UnknownParent != b.UnknownParent {
		c.Fatalf("stored %+v, want %+v", a, b)
	}
}

func (c *holeCorpus) remove(h index.Holder, names []uint64, middle bool) {
	a, _ := c.index.Remove(h, slices.Clone(names))
	b, _ := c.truth.Remove(h, slices.Clone(names))
	if a != b {
		c.Fatalf("%d removed, want %d", a, b)
	}
	if middle && a > 0 {
		c.holes++
	}
}

func (c *holeCorpus) compare(workers int) {
	for _, chain := range c.chains {
		got, want := c.index.Lookup(chain, nil), c.truth.Lookup(chain, nil)
		for h := range min(workers, len(want)) {
			c.scored.Asked++
			switch {
			case got[h] < want[h]:
				c.scored.Low++
			case got[h] > want[h]:
				c.scored.High++
			}
		}
	}
}
