package fleet

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"fleetdrill/gateway/index"
	"fleetdrill/gateway/policy"
	"fleetdrill/internal/contract"
)

// crowd is a fleet of n ready workers with one rank each, and what each caches of the prompt, in tokens.
type crowd struct {
	*Core
	picker *policy.Picker
	held   []int
}

func newCrowd(t interface{ Fatal(...any) }, n int, seed uint64) *crowd {
	p, err := policy.New(policy.CacheAware, seed)
	if err != nil {
		t.Fatal(err)
	}
	f := &crowd{NewCore(DefaultTiming()), p, make([]int, n)}
	for i := range n {
		w, err := f.Add(1, contract.WorkerSpec{ID: fmt.Sprint(i), KVBlockSize: 16}, []index.Holder{index.Holder(i)})
		if err != nil {
			t.Fatal(err)
		}
		f.PingDone(1, 1, w, PingOK, 200)
	}
	return f
}

func (f *crowd) score(w *Worker) (rank, tokens int) { return 0, f.held[w.Holders[0]] }

func (f *crowd) deepestHolders(below int, dst []index.Holder) (tokens int, holders []index.Holder) {
	for _, n := range f.held {
		if n < below {
			tokens = max(tokens, n)
		}
	}
	for h, n := range f.held {
		if n > 0 && n == tokens {
			dst = append(dst, index.Holder(h))
		}
	}
	return tokens, dst
}

func (f *crowd) ask(tried ...*Worker) Ask {
	return Ask{Tokens: 4096, Tried: tried, Score: f.score, Deepest: f.deepestHolders}
}

// Whatever is out or was tried, an idle large fleet serves a prompt where most of it is cached.
func TestDeepestHolderIsFoundInALargeFleet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		f := newCrowd(t, rapid.IntRange(wide+1, 200).Draw(t, "workers"), seed)
		holders := rapid.IntRange(0, len(f.held)).Draw(t, "holders")
		out := rapid.IntRange(0, len(f.held)-1).Draw(t, "out")
		levels := rapid.IntRange(1, 40).Draw(t, "levels")
		draw := rand.New(rand.NewPCG(seed, 1))
		for _, i := range draw.Perm(len(f.held))[:holders] {
			f.held[i] = 1024 + 16*draw.IntN(levels)
		}
		for _, i := range draw.Perm(len(f.held))[:out] {
			f.workers[i].dead = 1
		}
		tried := f.workers[draw.IntN(len(f.workers))]
		deepest, left := 0, 0
		for i, w := range f.workers {
			if w != tried && w.dead == 0 {
				deepest = max(deepest, f.held[i])
				left++
			}
		}
		r, err := f.Place(2, f.ask(tried), f.picker)
		if left == 0 {
			return
		}
		if err != nil || r.Overlap != deepest || r.Worker.dead > 0 || r.Worker == tried || r.Held != (deepest > 0) {
			t.Fatalf("%+v, %v; want %d tokens", r, err, deepest)
		}
	})
}

func TestMissesReachEveryWorkerOfALargeFleet(t *testing.T) {
	for seed := range uint64(5) {
		f := newCrowd(t, 128, seed)
		for range 1000 {
			r, err := f.Place(2, f.ask(), f.picker)
			if err != nil || r.Branch != policy.BranchMiss || len(f.cands) > sampleSize {
				t.Fatalf("%+v among %d, %v", r, len(f.cands), err)
			}
			f.End(2, r, Done)
		}
		idle := 0
		for _, w := range f.workers {
			if mean := 1000.0 / 128; float64(w.dispatches) > 3*mean {
				t.Errorf("seed %d: worker %s got %d of 1000", seed, w.ID, w.dispatches)
			}
			if w.dispatches == 0 {
				idle++ // 1,000 draws leave any one out with probability 4e-4
			}
		}
		if idle > 1 {
			t.Errorf("seed %d: %d workers got nothing", seed, idle)
		}
	}
}

// A strictly cheaper worker wins every time it is looked at, and is looked at in its turn.
func TestCheaperWorkerOfTheSampleWins(t *testing.T) {
	f, seen := newCrowd(t, 128, 1), 0
	for i, w := range f.workers {
		f.PollDone(1, 1, w, true, &Record{Waiting: int64(min(1, i))})
	}
	for range 400 {
		r, err := f.Place(2, Ask{}, f.picker)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(f.refs, f.workers[0]) {
			seen++
			if r.Worker != f.workers[0] {
				t.Fatalf("worker %s won over the cheaper one", r.Worker.ID)
			}
		}
		f.End(2, r, Done)
	}
	if seen < 25 || seen > 75 { // 400 x 16 of 128 is 50, with a deviation of 7
		t.Errorf("drawn %d times of 400", seen)
	}
}

// Ties of holders are drawn: all of many get their share of a hot prefix.
func TestManyHoldersShareAHotPrefix(t *testing.T) {
	f := newCrowd(t, 128, 3)
	for i := range 64 {
		f.held[i] = 2048
	}
	for range 1000 {
		r, err := f.Place(2, f.ask(), f.picker)
		if err != nil || r.Overlap != 2048 {
			t.Fatal(r, err)
		}
		f.End(2, r, Done)
	}
	for _, w := range f.workers[:64] {
		if w.dispatches == 0 || w.dispatches > 3*1000/64 {
			t.Errorf("holder %s got %d of 1000", w.ID, w.dispatches)
		}
	}
}

// What needs counts over the whole fleet gets the whole fleet.
func TestWholeFleetIsLookedAt(t *testing.T) {
	blocks := func(least int) func(w *Worker) (int, bool) {
		return func(w *Worker) (int, bool) { return min(4096, least+4096*int(w.Holders[0])), true }
	}
	minutes := 2 * youngFor
	for name, c := range map[string]struct {
		change func(f *crowd) Ask
		whole  bool
	}{
		"nothing special": {func(f *crowd) Ask { return f.ask() }, false},
		"full caches":     {func(f *crowd) Ask { f.Weigh(minutes, blocks(4096)); return f.ask() }, false},
		"a thin worker":   {func(f *crowd) Ask { f.Weigh(minutes, blocks(0)); return f.ask() }, true},
		"a thin one that is out": {func(f *crowd) Ask {
			f.Weigh(minutes, blocks(0))
			f.workers[0].dead = 1
			return f.ask()
		}, false},
		"one came back": {func(f *crowd) Ask {
			f.Weigh(minutes, blocks(4096))
			f.readmit(minutes, f.workers[5])
			return f.ask()
		}, true},
		"a score that does not tell its deepest": {func(f *crowd) Ask { return Ask{Score: f.score} }, true},
		"every deeper holder is out": {func(f *crowd) Ask {
			for i := range maxLevels {
				f.held[i], f.workers[i].dead = 1024+16*i, 1
			}
			f.held[100] = 512
			return f.ask()
		}, true},
	} {
		f := newCrowd(t, 128, 7)
		ask := c.change(f)
		if _, err := f.Place(minutes, ask, f.picker); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if whole := len(f.cands) > wide; whole != c.whole {
			t.Errorf("%s: looked at %d workers", name, len(f.cands))
		}
	}
}

// A holder's id is used again after its worker left.
func TestOwnersFollowTheRegistry(t *testing.T) {
	f := newCrowd(t, 64, 1)
	f.held[3] = 2048
	f.Remove(2, "3")
	if r, err := f.Place(2, f.ask(), f.picker); err != nil || r.Overlap != 0 {
		t.Fatal("a removed worker's cache was counted", r, err)
	}
	w, err := f.Add(2, contract.WorkerSpec{ID: "new", KVBlockSize: 16}, []index.Holder{3})
	if err != nil {
		t.Fatal(err)
	}
	f.PingDone(2, 2, w, PingOK, 200)
	if r, err := f.Place(2, f.ask(), f.picker); err != nil || r.Worker != w {
		t.Fatal(r, err)
	}
}

func BenchmarkPlace(b *testing.B) {
	for _, n := range []int{32, 128, 1024} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			f := newCrowd(b, n, 1)
			deepest := []index.Holder{index.Holder(n / 2)}
			f.held[n/2] = 2048
			ask := Ask{Tokens: 4096, Score: f.score, Deepest: func(int, []index.Holder) (int, []index.Holder) { return 2048, deepest }}
			for b.Loop() {
				r, err := f.Place(2, ask, f.picker)
				if err != nil {
					b.Fatal(err)
				}
				f.End(2, r, Done)
			}
		})
	}
}
