package oracle

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"fleetdrill/internal/contract"
)

func TestTokensAreCappedAsAnEngineCaps(t *testing.T) {
	for _, c := range []struct{ match, blockSize, prompt, want int }{
		{0, 16, 100, 0},
		{3, 16, 100, 48},
		{6, 16, 100, 96},
		{6, 16, 96, 80}, // the last token is always computed, and with it its block
		{6, 16, 97, 96},
		{1, 16, 16, 0},
		{5, 16, 1, 0},
		{5, 16, 0, 0},
	} {
		if got := Tokens(c.match, c.blockSize, c.prompt); got != c.want {
			t.Errorf("%d blocks of %d, prompt of %d: %d tokens, want %d", c.match, c.blockSize, c.prompt, got, c.want)
		}
	}
}

// hashOf stands in for an engine's chained hash: one number for every chain.
func hashOf(chain []uint64) uint64 {
	h := uint64(14695981039346656037)
	for _, c := range chain {
		h = (h ^ c) * 1099511628211
		h ^= h >> 29
	}
	return h
}

// storeChain announces the whole of a chain on a holder, block by block.
func storeChain(b *BestHolder, holder int, chain ...uint64) {
	for i := range chain {
		b.Store(holder, hashOf(chain[:i+1]), hashOf(chain[:i]), i > 0, chain[i])
	}
}

func TestTheDeepestHolderWithoutAHole(t *testing.T) {
	b := NewBestHolder(3)
	storeChain(b, 0, 1, 2)
	storeChain(b, 2, 1, 2, 3, 4)
	storeChain(b, 1, 9)
	depths := make([]int, 3)
	ask := func(want ...int) {
		t.Helper()
		best := b.Depths([]uint64{1, 2, 3, 4, 5}, depths)
		if !slices.Equal(depths, want) || best != slices.Max(want) {
			t.Errorf("depths %v, best %d, want %v", depths, best, want)
		}
	}
	ask(2, 0, 4)
	b.Remove(2, hashOf([]uint64{1, 2})) // a hole: what is behind it is no prefix any more
	ask(2, 0, 1)
	b.Store(0, hashOf([]uint64{1}), 0, false, 1)
	b.Remove(0, hashOf([]uint64{1})) // one of two copies
	ask(2, 0, 1)
	b.Clear(0)
	ask(0, 0, 1)
	if b.Store(0, 7, 5, true, 3) || b.Blocks(0) != 0 {
		t.Error("a block was stored under a parent that is not there")
	}
}

// Whatever happens to a fleet of whatever size, every holder has the depth that the slow reference says.
func TestDepthsAgainstTheReference(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		holders := rapid.IntRange(1, 130).Draw(rt, "holders")
		few := []int{0, holders / 2, holders - 1} // so that holders meet
		b, ref := NewBestHolder(holders), NewReference(1<<30)
		chains := rapid.SliceOfN(rapid.SliceOfN(rapid.Uint64Range(1, 3), 1, 5), 1, 6).Draw(rt, "chains")
		depths := make([]int, holders)
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			h := rapid.SampledFrom(few).Draw(rt, "holder")
			chain := rapid.SampledFrom(chains).Draw(rt, "chain")
			at := rapid.IntRange(1, len(chain)).Draw(rt, "at")
			hash, parent, content := hashOf(chain[:at]), hashOf(chain[:at-1]), chain[at-1]
			switch rapid.IntRange(0, 9).Draw(rt, "what") {
			case 0:
				b.Clear(h)
				ref.Clear(uint32(h))
			case 1, 2, 3:
				b.Remove(h, hash)
				ref.Remove(uint32(h), []uint64{hash})
			default:
				b.Store(h, hash, parent, at > 1, content)
				ref.Store(uint32(h), parent, at > 1, []uint64{hash}, []uint64{content})
			}
			asked := rapid.SampledFrom(chains).Draw(rt, "asked")
			best := b.Depths(asked, depths)
			for i, got := range depths {
				if want := ref.Score(uint32(i), asked); got != want {
					rt.Fatalf("holder %d has %d leading blocks of %v, want %d", i, got, asked, want)
				}
			}
			if best != slices.Max(depths) || b.Blocks(h) != len(ref.Blocks(uint32(h))) {
				rt.Fatalf("best %d of %v, %d blocks", best, depths, b.Blocks(h))
			}
		}
	})
}

// u64 is a pointer to a parent.
func u64(v uint64) *contract.U64 { u := contract.U64(v); return &u }

func store(chain ...uint64) contract.TruthStore {
	s := contract.TruthStore{Hash: contract.U64(hashOf(chain)), Position: len(chain) - 1, Content: contract.U64(chain[len(chain)-1])}
	if len(chain) > 1 {
		s.Parent = u64(hashOf(chain[:len(chain)-1]))
	}
	return s
}

// ask answers the depths of one chain at instants, in the order given.
func ask(tl *Timeline, chain []uint64, instants ...int64) (out []string) {
	out = make([]string, len(instants))
	var ps []Placement
	for i, at := range instants {
		ps = append(ps, Placement{AtNs: at, Chain: func(dst []uint64) []uint64 { return append(dst, chain...) },
			Answer: func(depths []int, best int) { out[i] = fmt.Sprint(depths, best) }})
	}
	tl.Ask(ps)
	return out
}

func TestTimelineAnswersForTheInstant(t *testing.T) {
	tl := NewTimeline(2)
	tl.Seed(1, 41, 5, []contract.TruthBlock{{Hash: contract.U64(hashOf([]uint64{1})), Content: 1, Copies: 2}})
	for _, l := range []struct {
		holder int
		line   contract.TruthJournal
	}{
		{0, contract.TruthJournal{Seq: 0, MonoNs: 10, Stored: []contract.TruthStore{store(1), store(1, 2)}}},
		{0, contract.TruthJournal{Seq: 1, MonoNs: 20, Stored: []contract.TruthStore{store(1, 2, 3)}, Removed: []contract.U64{contract.U64(hashOf([]uint64{1, 2, 3}))}}},
		{0, contract.TruthJournal{Seq: 2, MonoNs: 30, Removed: []contract.U64{contract.U64(hashOf([]uint64{1, 2}))}}},
		{1, contract.TruthJournal{Seq: 42, MonoNs: 25, Removed: []contract.U64{contract.U64(hashOf([]uint64{1}))}}},
		{1, contract.TruthJournal{Seq: 43, MonoNs: 35, Cleared: true, Stored: []contract.TruthStore{store(1), store(1, 2)}}},
		{1, contract.TruthJournal{Seq: 44, MonoNs: 45, Cleared: true}},
	} {
		if err := tl.Append(l.holder, &l.line); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"[1 1] 1", // 30: the second block went, and one of two copies leaves one
		"[0 0] 0", // 4: before anything
		"[0 1] 1", // 5
		"[2 1] 2", // 10: announced at that instant is there
		"[2 1] 2", // 20: stored and removed in one batch
		"[1 2] 2", // 35: cleared, then stored anew
		"[1 0] 1", // 99
	}
	if d := cmp.Diff(want, ask(tl, []uint64{1, 2, 3}, 30, 4, 5, 10, 20, 35, 99)); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	if tl.Next(0) != 3 || tl.Next(1) != 45 {
		t.Errorf("continues at %d and %d", tl.Next(0), tl.Next(1))
	}
	if err := tl.Append(0, &contract.TruthJournal{Seq: 4}); err == nil || err.Error() != "the journal continues at batch 4, want 3" {
		t.Errorf("a hole in the journal: %v", err)
	}
}

// A timeline asked afterwards says at every instant what a best holder that lived through it said.
func TestTimelineAgainstLivingThroughIt(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const holders = 3
		tl, b := NewTimeline(holders), NewBestHolder(holders)
		chains := rapid.SliceOfN(rapid.SliceOfN(rapid.Uint64Range(1, 2), 1, 4), 1, 4).Draw(rt, "chains")
		asked := rapid.SampledFrom(chains).Draw(rt, "asked")
		depths := make([]int, holders)
		var instants []int64
		var want []string
		now := int64(0)
		for range rapid.IntRange(1, 30).Draw(rt, "batches") {
			now += rapid.Int64Range(0, 2).Draw(rt, "pause")
			h := rapid.IntRange(0, holders-1).Draw(rt, "holder")
			j := contract.TruthJournal{Seq: tl.Next(h), MonoNs: now, Cleared: rapid.IntRange(0, 9).Draw(rt, "clear") == 0}
			if j.Cleared {
				b.Clear(h)
			}
			for range rapid.IntRange(0, 3).Draw(rt, "stored") {
				chain := rapid.SampledFrom(chains).Draw(rt, "chain")
				chain = chain[:rapid.IntRange(1, len(chain)).Draw(rt, "to")]
				s := store(chain...)
				j.Stored = append(j.Stored, s)
				b.Store(h, uint64(s.Hash), hashOf(chain[:len(chain)-1]), s.Parent != nil, uint64(s.Content))
			}
			for range rapid.IntRange(0, 2).Draw(rt, "removed") {
				chain := rapid.SampledFrom(chains).Draw(rt, "chain")
				hash := hashOf(chain[:rapid.IntRange(1, len(chain)).Draw(rt, "to")])
				j.Removed = append(j.Removed, contract.U64(hash))
				b.Remove(h, hash)
			}
			if err := tl.Append(h, &j); err != nil {
				rt.Fatal(err)
			}
			if n := len(instants); n > 0 && instants[n-1] == now {
				instants, want = instants[:n-1], want[:n-1] // the instant's last word counts
			}
			best := b.Depths(asked, depths)
			instants, want = append(instants, now), append(want, fmt.Sprint(depths, best))
		}
		if d := cmp.Diff(want, ask(tl, asked, instants...)); d != "" {
			rt.Fatalf("at %v (-want +got)\n%s", instants, d)
		}
	})
}

func BenchmarkDepths(b *testing.B) {
	const depth = 830 // blocks of a mean prompt of the public conversation trace
	f := NewBestHolder(8)
	chain := make([]uint64, depth)
	for i := range chain {
		chain[i] = uint64(i)
	}
	for h := range 8 {
		storeChain(f, h, chain[:100*(h+1)]...)
	}
	depths := make([]int, 8)
	b.ReportAllocs()
	for b.Loop() {
		f.Depths(chain, depths)
	}
}
