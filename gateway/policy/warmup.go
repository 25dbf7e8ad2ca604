package policy

import (
	"slices"
	"time"
)

// Constants of warming a worker up. Where every request has a holder, an emptied worker would never be
// chosen again: it is given a share of the misses, and while it is thin some of the hits.
const (
	sliceLeast     = 4                      // of so many misses at most one goes to warming workers
	divertEvery    = 8                      // of so many hits at most one is diverted
	divertPatience = 2 * divertEvery        // hits after which a deep one will do
	divertRest     = int64(2 * time.Second) // between two diversions to a worker that is busy
	smallOverlap   = 4                      // blocks: so few, and under half of the prompt, are worth no more than a miss

	// HerdWindow is the time over which shares of new prefixes are bounded.
	HerdWindow = 10 * time.Second
	// What is promised is three times the fair share; the difference is room for windows that begin
	// where it suits them.
	herdFactor = 2.5
	herdFloor  = 4 // placements of one worker that say nothing about a share
)

// Warmup stands in front of a cache-aware Picker and turns some of its decisions towards thin and young
// workers, without ever sending a herd there. It counts, and draws from the Picker's generator. The zero
// value is ready; it is not safe for concurrent use.
type Warmup struct {
	// Starve is the handicap no-thin-slice: warming workers get nothing.
	Starve bool

	sliced     bool // since has a meaning
	since      int  // misses since the last slice, counted while there is somebody to give one to
	hits       int  // since the last diversion, counted while a worker is thin
	sawShallow bool // a shallow one was among them
}

// field is what one pass over the candidates tells.
type field struct {
	deepest     int // index of the deepest overlap
	thin, young int // how many
	Sample
}

func survey(cands []Candidate, s Sample) (f field) {
	recent := 0
	for i := range cands {
		c := &cands[i]
		if c.Overlap > cands[f.deepest].Overlap {
			f.deepest = i
		}
		if c.Thin {
			f.thin++
		}
		if c.Young {
			f.young++
		}
		recent += c.Recent
	}
	if f.Sample = s; s.Workers == 0 {
		f.Sample = Sample{Fair: len(cands), Workers: len(cands), Recent: recent}
	}
	return f
}

// warming says who is being warmed: the thin workers, or, when there are none, the young ones. If all are
// young the fleet is new, and nobody is special.
func (f field) warming(n int) func(*Candidate) bool {
	switch {
	case f.thin > 0 && f.thin < n:
		return func(c *Candidate) bool { return c.Thin }
	case f.thin == 0 && f.young > 0 && f.young < n:
		return func(c *Candidate) bool { return c.Young }
	}
	return func(*Candidate) bool { return false }
}

// miss says whether the request is as good as one that nobody holds.
func (f field) miss(cands []Candidate) bool {
	best := &cands[f.deepest]
	return best.Overlap == 0 ||
		best.Overlap <= smallOverlap*best.BlockSize && 2*best.Overlap < best.Prompt
}

// Pick chooses among cands, which must not be empty. A retry has waited once, so it warms nobody. fresh
// says that the request brings a new prefix: the caller counts it in Recent of the chosen.
func (w *Warmup) Pick(now int64, retry bool, cands []Candidate, p *Picker) (choice Choice, fresh bool) {
	return w.PickFrom(now, retry, cands, Sample{}, p)
}

// PickFrom is Pick among candidates that may be a sample; then none of the fleet is thin or young.
func (w *Warmup) PickFrom(now int64, retry bool, cands []Candidate, s Sample, p *Picker) (choice Choice, fresh bool) {
	if p.name != CacheAware {
		return p.Pick(cands), false
	}
	f := survey(cands, s)
	if f.miss(cands) {
		return w.pickMiss(retry, f, cands, p), true
	}
	if i := w.divert(now, retry, f, cands, p); i >= 0 {
		return Choice{i, BranchDivert}, false
	}
	p.pool = all(p.pool[:0], len(cands))
	return p.cacheAware(cands, p.pool, f.Fair), false
}

// pickMiss gives one miss in many to a warming worker and keeps the others away from them, for an empty
// and idle worker looks best to every one of them.
func (w *Warmup) pickMiss(retry bool, f field, cands []Candidate, p *Picker) Choice {
	warming := f.warming(len(cands))
	most := max(herdFloor, herdFactor*float64(f.Recent+1)/float64(f.Workers))
	small := func(c *Candidate) bool { return float64(c.Recent+1) <= most }
	if !w.Starve && !retry {
		if i := p.leastInFlight(cands, func(c *Candidate) bool { return warming(c) && small(c) }); i >= 0 {
			w.since++
			if !w.sliced || w.since >= max(sliceLeast, (len(cands)+1)/2) {
				w.sliced, w.since = true, 0
				return Choice{i, BranchSlice}
			}
		}
	}
	pool := p.among(cands, func(c *Candidate) bool { return small(c) && !warming(c) })
	if len(pool) == 0 {
		// All but the warming ones have had their share. Somebody is always below the mean.
		pool = p.among(cands, small)
	}
	if len(pool) == 0 {
		// But not always in the sample: one of those that had least, then.
		least := slices.MinFunc(cands, func(a, b Candidate) int { return a.Recent - b.Recent }).Recent
		pool = p.among(cands, func(c *Candidate) bool { return c.Recent == least })
	}
	return p.cacheAware(cands, pool, f.Fair)
}

// among fills the picker's pool with the candidates that match.
func (p *Picker) among(cands []Candidate, match func(*Candidate) bool) []int {
	p.pool = p.pool[:0]
	for i := range cands {
		if match(&cands[i]) {
			p.pool = append(p.pool, i)
		}
	}
	return p.pool
}

// divert is the thin worker that this hit goes to, or -1. Shallow hits lose least, so a deep one is taken
// only when none came or the wait was long.
func (w *Warmup) divert(now int64, retry bool, f field, cands []Candidate, p *Picker) int {
	if f.thin == 0 || f.thin == len(cands) {
		w.hits, w.sawShallow = 0, false
		return -1
	}
	if w.Starve || retry {
		return -1
	}
	best := &cands[f.deepest]
	shallow := 2*best.Overlap <= best.Prompt
	w.hits++
	w.sawShallow = w.sawShallow || shallow
	if w.hits < divertEvery || w.hits < divertPatience && !shallow && w.sawShallow {
		return -1
	}
	i := p.leastInFlight(cands, func(c *Candidate) bool {
		return c.Thin && (c.InFlight == 0 || c.DivertedNs == 0 || now-c.DivertedNs >= divertRest)
	})
	// The deepest holder may itself be thin; then the hit is no sacrifice and no diversion.
	if i >= 0 && cands[i].Overlap == best.Overlap {
		return -1
	}
	if i >= 0 {
		w.hits, w.sawShallow = 0, false
	}
	return i
}
