package chain

import (
	"container/list"
	"flag"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"fleetdrill/gateway/index"
	"fleetdrill/gateway/index/indextest"
)

// -long runs 10^7 churn events instead of 10^5:
//
//	go test ./gateway/index/chain -run Churn -v -args -long
var long = flag.Bool("long", false, "run the churn test over 10^7 events")

// cache is an engine's: least recently used blocks go first, and of one request the last.
type cache struct {
	holder   index.Holder
	capacity int
	order    list.List // names, least recently used in front
	blocks   map[uint64]*list.Element
}

// match is the number of leading blocks that the engine has.
func (c *cache) match(names []uint64) int {
	for i, name := range names {
		if c.blocks[name] == nil {
			return i
		}
	}
	return len(names)
}

// add stores the blocks of a request that the engine lacks, marks all as used, evicts, and returns the
// number of events.
func (c *cache) add(ix index.Index, names, contents []uint64) (events int) {
	hit := c.match(names)
	if hit < len(names) {
		var parent uint64
		if hit > 0 {
			parent = names[hit-1]
		}
		ix.Store(c.holder, parent, hit > 0, names[hit:], contents[hit:])
		events++
	}
	for _, name := range slices.Backward(names) {
		if at := c.blocks[name]; at != nil {
			c.order.MoveToBack(at)
		} else {
			c.blocks[name] = c.order.PushBack(name)
		}
	}
	var evicted []uint64
	for c.order.Len() > c.capacity {
		name := c.order.Remove(c.order.Front()).(uint64)
		delete(c.blocks, name)
		evicted = append(evicted, name)
	}
	if len(evicted) > 0 {
		ix.Remove(c.holder, evicted)
		events++
	}
	return events
}

// Requests come and go, each with an answer that nobody asks for again, until 10^5 events (10^7 with
// -long) have passed. Every request's score equals what the engine itself finds, and the index is in the
// end what it was after the caches had filled: as many runs, words and runs per lookup.
func TestChurnLeavesNothing(t *testing.T) {
	events := 100_000
	if *long {
		events = 10_000_000
	}
	if indextest.RaceEnabled {
		events = 5_000
	}
	const workers, answer = 32, 4
	rng := rand.New(rand.NewPCG(11, 11))
	chains := indextest.Forest(rng, 600, 64)
	all := make([][]uint64, len(chains))
	for i, c := range chains {
		all[i] = names(c)
	}
	x := New()
	var caches [workers]*cache
	for h := range caches {
		caches[h] = &cache{holder: index.Holder(h), capacity: 3000, blocks: map[uint64]*list.Element{}}
	}
	var scores index.Scores
	var times []time.Duration
	var middle usage
	var middleWalk, middleP99 float64
	for done, sampled := 0, false; done < events; {
		c := caches[rng.IntN(workers)]
		n := rng.IntN(len(chains))
		cut := 1 + rng.IntN(len(chains[n]))
		start := time.Now()
		scores = x.Lookup(chains[n][:cut], scores)
		if times = append(times, time.Since(start)); len(times) > 20_000 {
			times = times[10_000:]
		}
		if want := c.match(all[n][:cut]); int(c.holder) < len(scores) && int(scores[c.holder]) != want {
			t.Fatalf("after %d events: score of %d is %d, its engine has %d", done, c.holder, scores[c.holder], want)
		}
		hashes, contents := all[n][:cut:cut], chains[n][:cut:cut]
		done += c.add(x, hashes, contents)
		for range answer {
			hashes, contents = append(hashes, rng.Uint64()|1), append(contents, rng.Uint64()|1)
			done += c.add(x, hashes, contents)
		}
		if !sampled && done >= events/2 {
			sampled = true
			middle, middleWalk, middleP99 = measure(t, x, chains, times)
		}
	}
	end, walk, p99 := measure(t, x, chains, times)
	t.Logf("half way: %+v, %.2f runs walked, p99 %.1f us", middle, middleWalk, middleP99)
	t.Logf("at the end: %+v, %.2f runs walked, p99 %.1f us", end, walk, p99)
	if events >= 100_000 && (float64(end.runs) > 1.1*float64(middle.runs) || float64(end.used) > 1.1*float64(middle.used) || walk > 1.1*middleWalk || end.total > middle.total*5/4) {
		t.Error("churn left something behind")
	}
}

// measure checks and counts the index, and the runs that a lookup of each chain walks.
func measure(t *testing.T, x *Index, chains [][]uint64, times []time.Duration) (u usage, walked, p99 float64) {
	t.Helper()
	u, err := x.check()
	if err != nil {
		t.Fatal(err)
	}
	n := len(x.holders.All())
	words := (n + 63) / 64
	set, dst := alive{make([]uint64, words), make([]uint64, words)}, make(index.Scores, n)
	visits := 0
	for _, c := range chains {
		x.walk(c, dst, set, func(visit) bool { visits++; return true })
	}
	times = slices.Clone(times)
	slices.Sort(times)
	return u, float64(visits)/float64(len(chains)) - 1, float64(times[len(times)*99/100].Nanoseconds()) / 1e3
}
