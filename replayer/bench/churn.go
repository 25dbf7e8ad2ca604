package bench

import (
	"fmt"
	"math/rand/v2"
	"time"

	"fleetdrill/gateway/index"
	"fleetdrill/internal/rng"
	"fleetdrill/replayer/bench/drive"
	"fleetdrill/replayer/bench/lru"
)

// ChurnSpec is a long life of one index: caches that fill, answers that nobody asks for again, eviction.
type ChurnSpec struct {
	Index string `json:"index"`
	// Workers share Chains of MinBlocks to MaxBlocks blocks, Shared of which begin like an earlier one. Cache
	// is the size of a worker's pool, Answer the blocks that each request adds one by one.
	Workers   int     `json:"workers"`
	Chains    int     `json:"chains"`
	MinBlocks int     `json:"min_blocks"`
	MaxBlocks int     `json:"max_blocks"`
	Shared    float64 `json:"shared"`
	Cache     int     `json:"cache"`
	Answer    int     `json:"answer"`
	// Events are lived through once the pools are full; Samples are taken in between at even distances, each
	// with Exact queries whose scores are compared with the caches themselves, Final at the end.
	Events  int    `json:"events"`
	Samples int    `json:"samples"`
	Exact   int    `json:"exact"`
	Final   int    `json:"final"`
	Seed    uint64 `json:"seed"`
}

// DefaultChurn is the published definition, over 10^7 events with full pools.
func DefaultChurn(name string) ChurnSpec {
	return ChurnSpec{Index: name, Workers: 128, Chains: 4000, MinBlocks: 16, MaxBlocks: 256, Shared: 0.7, Cache: 20_000, Answer: 4,
		Events: 10_000_000, Samples: 20, Exact: 200, Final: 5000, Seed: 1}
}

// Check says that a figure is out of its bounds.
func (s ChurnSpec) Check() error {
	if !bounded([3]int{s.Workers, 1, 1024}, [3]int{s.Chains, 1, 1 << 20}, [3]int{s.MinBlocks, 1, s.MaxBlocks}, [3]int{s.MaxBlocks, 1, 1 << 16},
		[3]int{s.Cache, s.MaxBlocks + s.Answer, 1 << 24}, [3]int{s.Answer, 0, 1 << 10}, [3]int{s.Events, 1, 1 << 40}, [3]int{s.Samples, 2, 1000},
		[3]int{s.Exact, 0, 1 << 20}, [3]int{s.Final, 0, 1 << 20}) || s.Shared < 0 || s.Shared > 1 {
		return fmt.Errorf("churning with %+v: a figure is out of its bounds, or a pool has no room for a request", s)
	}
	return nil
}

// ChurnRow is the index at one moment of its life.
type ChurnRow struct {
	Index string `json:"index"`
	// Phase is "before" (the first sample) or "after" (the last); in between it is empty.
	Phase string `json:"phase,omitempty"`
	// Events are those since the pools were full.
	Events int `json:"events"`
	// RunsLive, MeanRunLength and RunsPerLookup are 0 for an index that has no runs or does not count them.
	RunsLive      int64         `json:"runs_live"`
	MeanRunLength float64       `json:"mean_run_length"`
	RunsPerLookup float64       `json:"runs_per_lookup"`
	Lookup        drive.Latency `json:"lookup_us"`
	Memberships   int64         `json:"memberships"`
	SlabBytes     int64         `json:"slab_bytes"`
	// Exact are the queries whose scores were compared with the caches, all of them equal.
	Exact int `json:"exact"`
}

// ChurnResult is one index' life.
type ChurnResult struct {
	Rows     []ChurnRow `json:"rows"`    // before, after
	Samples  []ChurnRow `json:"samples"` // all
	Requests int        `json:"requests"`
	// FillEvents came before the first sample's: an index that grows is not one that ages.
	FillEvents int           `json:"fill_events"`
	WallS      float64       `json:"wall_s"`
	Foreign    drive.Foreign `json:"foreign"`
	LoadAvg    float64       `json:"load_avg"`
}

// Churn lives through it in this process.
func Churn(s ChurnSpec) (*ChurnResult, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	ix, err := drive.Make(s.Index)
	if err != nil {
		return nil, err
	}
	l := newLife(s, ix)
	began := time.Now()
	res := &ChurnResult{}
	foreign := drive.Watch()
	l.fillPools()
	res.FillEvents, l.events = l.events, 0
	for sample := 1; sample <= s.Samples; sample++ {
		l.until(s.Events / s.Samples * sample)
		n := s.Exact
		if sample == s.Samples {
			n = s.Final
		}
		row, err := l.sample(n)
		if err != nil {
			return nil, fmt.Errorf("churning %s, after %d events: %w", s.Index, l.events, err)
		}
		res.Samples = append(res.Samples, row)
	}
	before, after := res.Samples[0], res.Samples[len(res.Samples)-1]
	before.Phase, after.Phase = "before", "after"
	res.Rows, res.Requests, res.WallS = []ChurnRow{before, after}, l.requests, time.Since(began).Seconds()
	res.Foreign, res.LoadAvg = foreign(), drive.LoadAverage()
	return res, nil
}

// life is a fleet of caches and the index that follows them.
type life struct {
	spec     ChurnSpec
	draw     *rand.Rand
	index    index.Index
	chains   []chain
	pools    []*lru.Pool
	scores   index.Scores
	lookups  []uint32
	best     []index.Holder
	held     []int32
	gone     []uint64
	events   int
	requests int
}

func newLife(s ChurnSpec, ix index.Index) *life {
	l := &life{spec: s, draw: rng.Stream(s.Seed, "bench/churn"), index: ix}
	for range s.Chains {
		var c chain
		if n := len(l.chains); n > 0 && l.draw.Float64() < s.Shared {
			from := &l.chains[l.draw.IntN(n)]
			c = from.cut(1 + l.draw.IntN(len(from.hashes)))
		}
		if more := s.MinBlocks + l.draw.IntN(s.MaxBlocks-s.MinBlocks+1) - len(c.hashes); more > 0 {
			c.extend(l.draw, more)
		}
		l.chains = append(l.chains, c)
	}
	for range s.Workers {
		l.pools = append(l.pools, lru.New(s.Cache))
	}
	return l
}

// full is the share of all blocks that are cached when the pools count as full: a worker that no chain fell
// to would be waited for in vain.
const full = 0.99

// fillPools serves requests until the pools are full, or do not become so within ten times their blocks.
func (l *life) fillPools() {
	want := l.spec.Workers * l.spec.Cache
	for cached := 0; float64(cached) < full*float64(want) && l.requests < 10*want; {
		for range 1000 {
			l.request()
		}
		cached = 0
		for _, pool := range l.pools {
			cached += pool.Len()
		}
		l.lookups = l.lookups[:0]
	}
}

// until serves requests until so many events have passed.
func (l *life) until(events int) {
	l.lookups = l.lookups[:0]
	for l.events < events {
		l.request()
	}
}

// request takes a random piece of a random chain to its best holder, which stores what it lacks, answers
// block by block and evicts.
func (l *life) request() {
	whole := &l.chains[l.draw.IntN(len(l.chains))]
	c := whole.cut(1 + l.draw.IntN(len(whole.hashes)))
	began := time.Now()
	l.scores = l.index.Lookup(c.contents, l.scores)
	l.lookups = append(l.lookups, uint32(min(time.Since(began).Nanoseconds(), 1<<31)))
	h := l.holder()
	pool := l.pools[h]
	hit, _ := pool.Match(c.hashes)
	l.held = l.held[:0]
	for _, hash := range c.hashes[:hit] {
		l.held = append(l.held, pool.Hold(hash))
	}
	l.fill(h, &c, hit)
	for range l.spec.Answer {
		c.add(l.draw.Uint64())
		l.fill(h, &c, len(c.hashes)-1)
	}
	pool.Release(l.held)
	l.requests++
}

// holder is the best holder; several are drawn from.
func (l *life) holder() index.Holder {
	most := uint32(1)
	l.best = l.best[:0]
	for h, score := range l.scores {
		switch {
		case score > most:
			most, l.best = score, append(l.best[:0], index.Holder(h))
		case score == most:
			l.best = append(l.best, index.Holder(h))
		}
	}
	if len(l.best) == 0 {
		return index.Holder(l.draw.IntN(l.spec.Workers))
	}
	return l.best[l.draw.IntN(len(l.best))]
}

// fill caches the blocks of c from one on, and tells the index: what went first, then what came.
func (l *life) fill(h index.Holder, c *chain, from int) {
	l.gone = l.gone[:0]
	for _, hash := range c.hashes[from:] {
		id, gone, evicted := l.pools[h].Fill(hash)
		if l.held = append(l.held, id); evicted {
			l.gone = append(l.gone, gone)
		}
	}
	if len(l.gone) > 0 {
		l.index.Remove(h, l.gone)
		l.events++
	}
	if from < len(c.hashes) {
		l.events += c.store(l.index, h, from, len(c.hashes))
	}
}

// walked is how many lookups a sample counts runs of.
const walked = 1000

// sample looks at the index, and compares the scores of exact queries with the caches.
func (l *life) sample(exact int) (ChurnRow, error) {
	row := ChurnRow{Index: l.spec.Index, Events: l.events, Lookup: drive.Distribution(l.lookups), Memberships: l.index.Stats().Memberships, Exact: exact}
	if a, ok := l.index.(index.Accountant); ok {
		u, runs := a.Usage(), 0
		row.RunsLive, row.SlabBytes = u.Runs, u.Bytes
		row.MeanRunLength = float64(u.Blocks) / float64(max(u.Runs, 1))
		for range walked {
			c := &l.chains[l.draw.IntN(len(l.chains))]
			runs += a.Walked(c.contents[:1+l.draw.IntN(len(c.contents))])
		}
		row.RunsPerLookup = float64(runs) / walked
	}
	if l.spec.Index == drive.Null {
		return row, nil
	}
	for range exact {
		c := &l.chains[l.draw.IntN(len(l.chains))]
		n := 1 + l.draw.IntN(len(c.hashes))
		l.scores = l.index.Lookup(c.contents[:n], l.scores)
		for h, pool := range l.pools {
			want, _ := pool.Match(c.hashes[:n])
			got := 0
			if h < len(l.scores) {
				got = int(l.scores[h])
			}
			if got != want {
				return row, fmt.Errorf("the score of worker %d is %d, its cache has %d leading blocks", h, got, want)
			}
		}
	}
	return row, nil
}
