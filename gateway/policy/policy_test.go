package policy

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"
)

func picker(t interface{ Fatal(...any) }, name string, seed uint64) *Picker {
	p, err := New(name, seed)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestUnknownPolicyIsAnError(t *testing.T) {
	if _, err := New("fastest", 1); err == nil {
		t.Fatal("an unknown policy was made")
	}
}

func TestRoundRobinTakesTurns(t *testing.T) {
	p, cands := picker(t, RoundRobin, 1), make([]Candidate, 3)
	for i := range 7 {
		if got := p.Pick(cands).Index; got != i%3 {
			t.Fatalf("turn %d went to %d", i, got)
		}
	}
}

// A cold fleet is reached whole: deterministic ties would send everything to a few.
func TestMissesReachEveryIdleWorker(t *testing.T) {
	for seed := range uint64(5) {
		p, cands := picker(t, CacheAware, seed), make([]Candidate, 128)
		for i := range cands {
			cands[i].Reported = true
		}
		counts := make([]int, len(cands))
		for range 1000 {
			counts[p.Pick(cands).Index]++
		}
		for i, n := range counts {
			// 1,000 draws leave any one of 128 workers out with probability 4e-4.
			if mean := 1000.0 / 128; float64(n) > 3*mean {
				t.Errorf("seed %d: worker %d got %d of 1000, mean %.1f", seed, i, n, mean)
			}
		}
		if missed := count(counts, 0); missed > 1 {
			t.Errorf("seed %d: %d workers got nothing", seed, missed)
		}
	}
}

func count(xs []int, want int) (n int) {
	for _, x := range xs {
		if x == want {
			n++
		}
	}
	return n
}

// 2 us are above the width of a tie, so the cheaper worker always wins.
func TestStrictlyCheaperWinsEveryTime(t *testing.T) {
	p, cands := picker(t, CacheAware, 1), make([]Candidate, 128)
	for i := range cands {
		cands[i] = Candidate{Reported: true, Rate: 1e6, OwnTokens: 100}
	}
	cands[77].OwnTokens = 98 // at 10^6 tokens/s, 2 us less
	for range 1000 {
		if got := p.Pick(cands).Index; got != 77 {
			t.Fatalf("worker %d won over the cheaper one", got)
		}
	}
}

func TestCacheAwareCases(t *testing.T) {
	idle := func(overlap int) Candidate { return Candidate{Overlap: overlap, Reported: true} }
	busy := func(overlap, inflight int) Candidate {
		return Candidate{Overlap: overlap, InFlight: inflight, Reported: true}
	}
	for name, c := range map[string]struct {
		cands  []Candidate
		index  int
		branch string
	}{
		"deepest holder": {[]Candidate{idle(0), idle(16), idle(32)}, 2, BranchHit},
		"among equals the one that waits less": {[]Candidate{
			{Overlap: 32, Reported: true, Waiting: 2}, {Overlap: 32, Reported: true, Waiting: 1}, idle(0)}, 1, BranchHit},
		"a busy holder below the absolute gate": {[]Candidate{busy(32, 9), busy(0, 0)}, 0, BranchHit},
		// Mean 7: 14 in flight are twice the mean, but not 10 above it.
		"only the relative gate":   {[]Candidate{busy(32, 14), busy(0, 0)}, 0, BranchHit},
		"both gates, so it spills": {[]Candidate{busy(32, 40), busy(0, 0)}, 1, BranchSpill},
		// The spill still prefers nobody for its shallow overlap: it goes by waiting alone.
		"a shallow holder may be hit by a spill": {[]Candidate{busy(32, 40), {Overlap: 16, Reported: true}, {Reported: true, Waiting: 1}}, 1, BranchHit},
	} {
		got := picker(t, CacheAware, 1).Pick(c.cands)
		if got.Index != c.index || got.Branch != c.branch {
			t.Errorf("%s: %+v, want %d by %s", name, got, c.index, c.branch)
		}
	}
}

func TestExpectedWait(t *testing.T) {
	for name, c := range map[string]struct {
		cand Candidate
		want float64
	}{
		"idle":                    {Candidate{}, 0},
		"waiting requests":        {Candidate{Waiting: 2}, 2 * 1024.0 / 2000},
		"uncached tokens instead": {Candidate{Waiting: 2, WaitingUncached: 500}, 0.25},
		"own dispatches":          {Candidate{OwnTokens: 2000}, 1},
		"its own rate":            {Candidate{OwnTokens: 2000, Rate: 4000}, 0.5},
		"half-full pool":          {Candidate{Usage: 0.5}, 0.15},
		"full pool is finite":     {Candidate{Usage: 1}, 0.15 * 0.999 / 0.001},
	} {
		if got := Wait(&c.cand); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %g s, want %g s", name, got, c.want)
		}
	}
}

// A worker whose record is missing is neither taken for idle nor starved.
func TestWorkerWithoutARecord(t *testing.T) {
	cands := []Candidate{{Reported: true, Waiting: 4}, {Reported: true, Waiting: 2}, {InFlight: 1}}
	got := waits(nil, cands, []int{0, 1, 2})
	if got[2] <= got[1] || got[2] >= got[0] {
		t.Errorf("waits %v: the dark worker is not between its peers", got)
	}
	dark := waits(nil, []Candidate{{InFlight: 3}, {InFlight: 1}}, []int{0, 1})
	if fmt.Sprint(dark) != "[3 1]" {
		t.Errorf("all dark: %v, want the numbers in flight", dark)
	}
}

// genCands draws a fleet.
func genCands(t *rapid.T) []Candidate {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Candidate {
		return Candidate{
			Overlap:   16 * rapid.IntRange(0, 4).Draw(t, "overlap"),
			InFlight:  rapid.IntRange(0, 60).Draw(t, "inflight"),
			Reported:  rapid.Bool().Draw(t, "reported"),
			Waiting:   rapid.IntRange(0, 5).Draw(t, "waiting"),
			Usage:     rapid.Float64Range(0, 1).Draw(t, "usage"),
			OwnTokens: int64(rapid.IntRange(0, 9000).Draw(t, "own")),
		}
	}), 1, 40).Draw(t, "cands")
}

// cache_aware against its rule read literally.
func TestCacheAwareFollowsTheRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cands := genCands(t)
		got := picker(t, CacheAware, rapid.Uint64().Draw(t, "seed")).Pick(cands)
		deepest, sum := 0, 0
		for _, c := range cands {
			deepest, sum = max(deepest, c.Overlap), sum+c.InFlight
		}
		mean := float64(sum) / float64(len(cands))
		safe := func(c Candidate) bool {
			return float64(c.InFlight) <= 1.5*mean || float64(c.InFlight) <= mean+10
		}
		anySafeHolder, anySafe := false, false
		for _, c := range cands {
			anySafe = anySafe || safe(c)
			anySafeHolder = anySafeHolder || deepest > 0 && c.Overlap == deepest && safe(c)
		}
		pool := []int{}
		for i, c := range cands {
			switch {
			case deepest == 0, anySafeHolder && c.Overlap == deepest && safe(c), !anySafeHolder && (safe(c) || !anySafe):
				pool = append(pool, i)
			}
		}
		costs := waits(nil, cands, pool)
		least, chosen := math.Inf(1), math.NaN()
		for k, i := range pool {
			least = min(least, costs[k])
			if i == got.Index {
				chosen = costs[k]
			}
		}
		if !(chosen <= least+tieWidth) {
			t.Fatalf("chose %+v of %+v: cost %g, least of its pool %g", got, cands, chosen, least)
		}
	})
}

// The same seed gives the same decisions, for every policy.
func TestSeededDecisionsRepeat(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(Names).Draw(t, "policy")
		seed := rapid.Uint64().Draw(t, "seed")
		cands := genCands(t)
		a, b := picker(t, name, seed), picker(t, name, seed)
		for range 20 {
			if x, y := a.Pick(cands), b.Pick(cands); x != y {
				t.Fatalf("%+v and %+v from one seed", x, y)
			}
		}
	})
}

func TestPowerOfTwoNeverTakesTheWorse(t *testing.T) {
	p, cands := picker(t, PowerOfTwo, 1), []Candidate{{InFlight: 5}, {InFlight: 1}}
	for range 100 {
		if got := p.Pick(cands).Index; got != 1 {
			t.Fatalf("of two choices the busier one, %d, was taken", got)
		}
	}
}

func BenchmarkPick(b *testing.B) {
	p, _ := New(CacheAware, 1)
	cands := make([]Candidate, 128)
	for i := range cands {
		cands[i] = Candidate{Overlap: 16 * (i % 5), InFlight: i % 7, Reported: true, Waiting: i % 3}
	}
	for b.Loop() {
		p.Pick(cands)
	}
}
