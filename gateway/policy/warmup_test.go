package policy

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// warmFleet is n idle workers that hold the whole of a 64-block prompt, of which the first `thin` are thin
// and hold nothing.
func warmFleet(n, thin int) []Candidate {
	cands := make([]Candidate, n)
	for i := range cands {
		cands[i] = Candidate{Prompt: 1024, BlockSize: 16, Overlap: 1024, Reported: true}
		if i < thin {
			cands[i].Thin, cands[i].Overlap = true, 0
		}
	}
	return cands
}

// overlap gives the workers that are not thin this overlap, in tokens.
func overlap(cands []Candidate, tokens int) []Candidate {
	for i := range cands {
		if !cands[i].Thin {
			cands[i].Overlap = tokens
		}
	}
	return cands
}

func TestEmptiedWorkerGetsItsSlice(t *testing.T) {
	for _, c := range []struct{ workers, within int }{{2, 4}, {8, 4}, {9, 5}, {16, 8}, {128, 64}} {
		var w Warmup
		p := picker(t, CacheAware, 1)
		cands := overlap(warmFleet(c.workers, 1), 0)
		for n := range 20 * c.within {
			got, fresh := w.Pick(0, false, cands, p)
			if !fresh {
				t.Fatalf("%d workers: a miss is not a new prefix", c.workers)
			}
			// The first qualifies, then every so many-th, and nothing else ever goes there: its idleness
			// would draw all of them.
			if want := n%c.within == 0; (got.Index == 0) != want || (got.Branch == BranchSlice) != want {
				t.Fatalf("%d workers, miss %d: %+v", c.workers, n, got)
			}
		}
	}
}

// What counts as a miss: at most four blocks, and under half of the prompt.
func TestSmallOverlapsAreMisses(t *testing.T) {
	for _, c := range []struct {
		prompt, blocks int
		miss           bool
	}{{1024, 0, true}, {1024, 4, true}, {1024, 5, false}, {128, 4, false}, {144, 4, true}, {33, 1, true}, {32, 1, false}} {
		var w Warmup
		cands := []Candidate{{Prompt: c.prompt, BlockSize: 16, Overlap: 16 * c.blocks}, {Prompt: c.prompt, BlockSize: 16}}
		if _, fresh := w.Pick(0, false, cands, picker(t, CacheAware, 1)); fresh != c.miss {
			t.Errorf("%d blocks of %d tokens: miss %v", c.blocks, c.prompt, fresh)
		}
	}
}

func TestHitsAreDivertedWhileThin(t *testing.T) {
	for name, c := range map[string]struct {
		overlap func(n int) int // tokens held of hit n, of 1,024
		first   int             // the hit that is diverted, from 1
	}{
		"all deep: the eighth":                   {func(int) int { return 1024 }, 8},
		"all shallow: the eighth":                {func(int) int { return 256 }, 8},
		"shallow ones come, so deep ones wait":   {func(n int) int { return []int{256, 1024}[min(n-1, 1)] }, 16},
		"and the next shallow one ends the wait": {func(n int) int { return map[bool]int{true: 256, false: 1024}[n == 1 || n == 11] }, 11},
	} {
		var w Warmup
		p, cands := picker(t, CacheAware, 1), warmFleet(8, 1)
		for n := 1; ; n++ {
			got, fresh := w.Pick(0, false, overlap(cands, c.overlap(n)), p)
			if fresh {
				t.Fatalf("%s: a hit is a new prefix", name)
			}
			if got.Branch == BranchDivert {
				if n != c.first || got.Index != 0 {
					t.Errorf("%s: hit %d went to %d", name, n, got.Index)
				}
				break
			}
			if n > c.first {
				t.Errorf("%s: nothing diverted by hit %d", name, n)
				break
			}
		}
	}
}

// A busy thin worker gets no second diversion within two seconds; an idle one does.
func TestDiversionRests(t *testing.T) {
	var w Warmup
	p, cands := picker(t, CacheAware, 1), warmFleet(8, 1)
	now := int64(time.Hour)
	next := func(limit int) int {
		for n := 1; n <= limit; n++ {
			if got, _ := w.Pick(now, false, cands, p); got.Branch == BranchDivert {
				return n
			}
		}
		return 0
	}
	if n := next(8); n != 8 {
		t.Fatalf("the first diversion is hit %d", n)
	}
	cands[0].DivertedNs, cands[0].InFlight = now, 1
	now += int64(2*time.Second) - 1
	if n := next(100); n != 0 {
		t.Errorf("diverted to a busy worker after 1.999 s, hit %d", n)
	}
	cands[0].InFlight = 0
	if n := next(1); n != 1 {
		t.Error("an idle worker has to wait")
	}
	cands[0].DivertedNs, cands[0].InFlight = now, 1
	now += int64(2 * time.Second)
	if n := next(8); n != 8 {
		t.Errorf("after two seconds the next diversion is hit %d", n)
	}
}

// A retry has waited once: it is neither sliced nor diverted, and does not count.
func TestRetriesWarmNobody(t *testing.T) {
	var w Warmup
	p, hit, miss := picker(t, CacheAware, 1), warmFleet(8, 1), overlap(warmFleet(8, 1), 0)
	for range 50 {
		for _, cands := range [][]Candidate{hit, miss} {
			if got, _ := w.Pick(0, true, cands, p); got.Index == 0 {
				t.Fatalf("a retry went to the thin worker: %+v", got)
			}
		}
	}
}

func TestStarvedThinWorkersGetNothing(t *testing.T) {
	w := Warmup{Starve: true}
	p, hit, miss := picker(t, CacheAware, 1), warmFleet(8, 1), overlap(warmFleet(8, 1), 0)
	for range 200 {
		for _, cands := range [][]Candidate{hit, miss} {
			if got, _ := w.Pick(0, false, cands, p); got.Index == 0 {
				t.Fatalf("the thin worker got something: %+v", got)
			}
		}
	}
}

// Young workers are warmed like thin ones, unless a thin one exists or all are young.
func TestWhoIsWarmed(t *testing.T) {
	young := func(n int) []Candidate {
		cands := overlap(warmFleet(8, 0), 0)
		for i := range n {
			cands[i].Young = true
		}
		return cands
	}
	thinToo := young(1)
	thinToo[7].Thin = true
	for name, c := range map[string]struct {
		cands  []Candidate
		warmed int // index, -1 = nobody
	}{
		"one young":       {young(1), 0},
		"all young":       {young(8), -1},
		"thin before any": {thinToo, 7},
		"nobody":          {young(0), -1},
	} {
		var w Warmup
		got, _ := w.Pick(0, false, c.cands, picker(t, CacheAware, 1))
		if sliced := got.Branch == BranchSlice; sliced != (c.warmed >= 0) || sliced && got.Index != c.warmed {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// Policies that do not look at caches are left alone.
func TestOtherPoliciesAreNotTouched(t *testing.T) {
	for _, name := range Names {
		if name == CacheAware {
			continue
		}
		var w Warmup
		a, b, cands := picker(t, name, 1), picker(t, name, 1), overlap(warmFleet(8, 1), 0)
		for range 50 {
			got, fresh := w.Pick(0, false, cands, a)
			if want := b.Pick(cands); got != want || fresh {
				t.Fatalf("%s: %+v, alone it picks %+v", name, got, want)
			}
		}
	}
}

// crowd plays seeded requests against a fleet whose workers turn thin and young and back, keeping what a
// gateway keeps: where new prefixes went in the last ten seconds and when a hit was diverted.
type crowd struct {
	cands  []Candidate
	recent []struct {
		at  int64
		who int
	}
}

func (c *crowd) pick(now int64, w *Warmup, p *Picker) (got Choice, fresh bool) {
	for len(c.recent) > 0 && c.recent[0].at <= now-int64(HerdWindow) {
		c.cands[c.recent[0].who].Recent--
		c.recent = c.recent[1:]
	}
	got, fresh = w.Pick(now, false, c.cands, p)
	if fresh {
		c.cands[got.Index].Recent++
		c.recent = append(c.recent, struct {
			at  int64
			who int
		}{now, got.Index})
	}
	if got.Branch == BranchDivert {
		c.cands[got.Index].DivertedNs = now
	}
	return got, fresh
}

// Ten to the five decisions in fleets of all sizes, with one worker that looks best to every miss: no
// worker's share of the new prefixes in any ten seconds is above three times the fair one.
func TestNoHerd(t *testing.T) {
	for _, n := range []int{3, 4, 8, 31, 128} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			var w Warmup
			p := picker(t, CacheAware, uint64(n))
			c := crowd{cands: make([]Candidate, n)}
			now := int64(time.Hour)
			for step := range 20_000 {
				if step%500 == 0 {
					c.shuffle(p)
				}
				now += int64(p.rng.IntN(20)) * int64(time.Millisecond) // 100 a second
				got, fresh := c.pick(now, &w, p)
				if most := max(herdFloor, 3*float64(len(c.recent))/float64(n)); fresh && float64(c.cands[got.Index].Recent) > most {
					t.Fatalf("step %d: %d of the last %d new prefixes went to one of %d workers", step, c.cands[got.Index].Recent, len(c.recent), n)
				}
			}
		})
	}
}

// shuffle draws who is thin, young, loaded and idle; at most half are thin, as by the median.
func (c *crowd) shuffle(p *Picker) {
	thin := p.rng.IntN(len(c.cands)/2 + 1)
	for i, at := range p.rng.Perm(len(c.cands)) {
		recent, diverted := c.cands[at].Recent, c.cands[at].DivertedNs
		c.cands[at] = Candidate{Prompt: 1024, BlockSize: 16, Reported: true, Waiting: 1 + p.rng.IntN(9), InFlight: p.rng.IntN(20),
			Recent: recent, DivertedNs: diverted, Thin: i < thin, Young: p.rng.IntN(3) > 0}
	}
	c.cands[p.rng.IntN(len(c.cands))].Waiting = 0
}

// Whatever the fleet and the hits: while the same workers are thin at most one hit in eight is diverted,
// at the latest the sixteenth while an idle thin worker waits, and none when nobody is thin.
func TestDiversionRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w Warmup
		p := picker(t, CacheAware, rapid.Uint64().Draw(t, "seed"))
		cands := warmFleet(8, 1)
		now, hits, diverted, since := int64(time.Hour), 0, 0, 0
		for range rapid.IntRange(1, 200).Draw(t, "requests") {
			now += rapid.Int64Range(0, int64(time.Second)).Draw(t, "gap")
			switch rapid.IntRange(0, 19).Draw(t, "change") {
			case 0: // filled, or emptied again: another count begins
				cands[0].Thin = !cands[0].Thin
				w.Pick(now, false, overlap(cands, 512), p)
				hits, diverted, since = 0, 0, 0
				if cands[0].Thin {
					hits, since = 1, 1
				}
				continue
			case 1:
				cands[0].InFlight = rapid.IntRange(0, 2).Draw(t, "inflight")
			}
			cands[0].Overlap = 0
			got, _ := w.Pick(now, false, overlap(cands, 16*rapid.IntRange(5, 64).Draw(t, "blocks")), p)
			hits, since = hits+1, since+1
			if got.Branch == BranchDivert {
				if since = 0; !cands[0].Thin || got.Index != 0 {
					t.Fatalf("diverted to %d, thin %v", got.Index, cands[0].Thin)
				}
				diverted++
				cands[0].DivertedNs = now
			}
			if diverted*divertEvery > hits {
				t.Fatalf("%d of %d hits diverted", diverted, hits)
			}
			if cands[0].Thin && cands[0].InFlight == 0 && since >= divertPatience {
				t.Fatalf("nothing diverted in %d hits", since)
			}
		}
	})
}

func BenchmarkWarmup(b *testing.B) {
	var w Warmup
	p, _ := New(CacheAware, 1)
	cands := overlap(warmFleet(128, 1), 0)
	for b.Loop() {
		w.Pick(0, false, cands, p)
	}
}

// Without anybody to warm, a miss costs this much more than the picker alone.
func BenchmarkWarmupIdle(b *testing.B) {
	var w Warmup
	p, _ := New(CacheAware, 1)
	cands := overlap(warmFleet(128, 0), 0)
	for b.Loop() {
		w.Pick(0, false, cands, p)
	}
}

func BenchmarkPickMiss(b *testing.B) {
	p, _ := New(CacheAware, 1)
	cands := overlap(warmFleet(128, 0), 0)
	for b.Loop() {
		p.Pick(cands)
	}
}
