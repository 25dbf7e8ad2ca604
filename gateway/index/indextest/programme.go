package indextest

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fleetdrill/gateway/index"
)

// watchdog is when a test that hangs is ended, by naming who hangs.
const watchdog = 300 * time.Second

// Lanes is the concurrency programme: 16 writers with a holder each, 4 readers, every worker replaced each 97
// steps. In each of runs indexes every step reports, and counts, what the reference does, no score is longer
// than its chain, and in the end all equals the reference. Of an index that may understate, the scores that
// are too low are counted.
func Lanes(t *testing.T, runs, steps int, understates bool, make func() index.Index) {
	t.Helper()
	var under *understated
	if understates {
		under = &understated{}
	}
	for seed := range uint64(runs) {
		ix := make()
		chains := Forest(rand.New(rand.NewPCG(seed, 99)), 30, 12)
		lanes := write(t, ix, chains, seed, steps)
		for _, l := range lanes {
			if err := l.compare(ix, under); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		for _, l := range lanes {
			ix.Drop(l.Holder)
		}
		if s := ix.Stats(); s != (index.Stats{}) {
			t.Fatalf("seed %d: with every holder dropped, %+v is left", seed, s)
		}
	}
	if under != nil {
		t.Logf("%d of %d scores are too low", under.low, under.asked)
	}
}

// write runs the lanes beside the readers to their end.
func write(t *testing.T, ix index.Index, chains [][]uint64, seed uint64, steps int) []*Lane {
	t.Helper()
	var lanes []*Lane
	var busy [16]atomic.Int64 // the step that a lane is at, -1 when it is done
	var writers, readers sync.WaitGroup
	var stop atomic.Bool
	dog := time.AfterFunc(watchdog, func() {
		for i := range busy {
			if at := busy[i].Load(); at >= 0 {
				panic(fmt.Sprintf("lane %d hangs at step %d", i, at))
			}
		}
		panic("a reader hangs")
	})
	defer dog.Stop()
	for i := range busy {
		l := NewLane(index.Holder(i*5), chains, seed)
		lanes = append(lanes, l)
		writers.Go(func() {
			for step := range steps {
				busy[i].Store(int64(step))
				act := l.Event
				if step%97 == 96 {
					act = l.Replace
				}
				if err := act(ix); err != nil {
					t.Errorf("seed %d, step %d: %v", seed, step, err)
					break
				}
			}
			busy[i].Store(-1)
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
				runtime.Gosched() // readers that never pause would keep writers behind a shared lock waiting
			}
		})
	}
	writers.Wait()
	stop.Store(true)
	readers.Wait()
	return lanes
}

// Corpus is a history of events over 16 holders in one goroutine: every event's report and count equal the
// reference, so does a score every 16 events, and everything in the end.
func Corpus(t *testing.T, ix index.Index, seed uint64, events int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	chains := Forest(rng, 24, 10)
	var lanes []*Lane
	for h := range index.Holder(16) {
		lanes = append(lanes, NewLane(h, chains, seed))
	}
	for i := range events {
		l := lanes[rng.IntN(len(lanes))]
		if err := l.Event(ix); err != nil {
			t.Fatalf("seed %d, event %d: %v", seed, i, err)
		}
		if i%16 != 0 {
			continue
		}
		c := chains[rng.IntN(len(chains))]
		if err := l.Score(ix, fiveLookups(c)[i/16%5]); err != nil {
			t.Fatalf("seed %d, event %d: %v", seed, i, err)
		}
	}
	for _, l := range lanes {
		if err := l.Compare(ix); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// ConcurrentSplits stores, from two goroutines with a shard each or one index, chains that leave each other
// everywhere and are evicted again, and compares. Each run is short, because what it is after happens when the
// two meet on a fresh chain.
func ConcurrentSplits(t *testing.T, runs int, make func() index.Index) {
	t.Helper()
	for seed := range uint64(runs) {
		ix := make()
		chains := Forest(rand.New(rand.NewPCG(seed, 7)), 6, 8)
		var wg sync.WaitGroup
		var lanes []*Lane
		start := barrier(4)
		for h := range index.Holder(4) {
			l := NewLane(h, chains, seed)
			lanes = append(lanes, l)
			wg.Go(func() {
				start()
				for range 40 {
					if err := l.Event(ix); err != nil {
						t.Errorf("run %d: %v", seed, err)
						return
					}
				}
			})
		}
		wg.Wait()
		for _, l := range lanes {
			if err := l.Compare(ix); err != nil {
				t.Fatalf("run %d: %v", seed, err)
			}
		}
	}
}

// barrier is a wait that ends for n callers at once.
func barrier(n int) func() {
	var wg sync.WaitGroup
	wg.Add(n)
	return func() { wg.Done(); wg.Wait() }
}
