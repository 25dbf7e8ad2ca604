package fleet

import (
	"slices"
	"time"

	"fleetdrill/gateway/policy"
	"fleetdrill/internal/contract"
)

const (
	// thinLevel is the fleet's median below which nobody is thin: everybody has just begun. It is also
	// what a young worker has to grow to be a worker like any other. Blocks.
	thinLevel = 1024
	// thinShare of the fleet's median fill is the least that is not thin. There is no age limit: a limit
	// would leave for ever behind who fills slowly.
	thinShare = 0.5
	// youngFor is how long a worker counts as young at most.
	youngFor = int64(time.Minute)
)

// warmth is what is known of a worker's cache and of how long it has been here.
type warmth struct {
	known    bool  // whether its cache can be known: without events emptiness says nothing
	blocks   int   // that the index holds, all ranks
	pool     int   // blocks that the engine has, all ranks; 0 = not known
	thin     bool  // by fill; only a routable worker shows it
	admitted int64 // mono ns at which it last became routable
	// base is the least blocks seen since admitted, -1 before the first look: what it has grown is
	// counted from there.
	base int

	divertedAt int64 // mono ns of the last hit diverted here
	diverted   int64
	recent     int // new prefixes placed here in the last policy.HerdWindow
}

// admit starts the warm-up clock: the worker is new, or back.
func (c *Core) admit(now int64, w *Worker) {
	w.warmth.admitted, w.warmth.base = now, -1
	if w.warmth.known {
		c.warming = append(c.warming, w)
	}
}

func (w *Worker) young(now int64) bool {
	m := &w.warmth
	return m.known && now-m.admitted < youngFor && (m.base < 0 || m.blocks-m.base < thinLevel)
}

// fill is the used share of the pool. A worker that does not tell its pool is taken to have the fleet's
// largest.
func (m *warmth) fill(largest int) float64 {
	switch {
	case m.pool > 0:
		return float64(m.blocks) / float64(m.pool)
	case largest > 0:
		return float64(m.blocks) / float64(largest)
	}
	return float64(m.blocks)
}

// Weigh compares what the index holds for each worker and finds the thin ones. blocks says how many, over
// all ranks, and whether the worker has an event stream at all. Weigh wants to be called twice a second
// or so.
func (c *Core) Weigh(now int64, blocks func(*Worker) (n int, known bool)) {
	largest := 0
	for _, w := range c.workers {
		m := &w.warmth
		m.blocks, m.known = blocks(w)
		if m.known && (m.base < 0 || m.blocks < m.base) {
			m.base = m.blocks
		}
		largest = max(largest, m.pool)
	}
	level, fill := c.level(now, largest)
	clear(c.warming)
	c.warming = c.warming[:0]
	for _, w := range c.workers {
		m := &w.warmth
		m.thin = m.known && level >= thinLevel && (m.blocks == 0 || m.fill(largest) < thinShare*fill)
		if m.thin || w.young(now) {
			c.warming = append(c.warming, w)
		}
	}
}

// level is the upper median, over the routable workers, of blocks and of fill. Workers that are out say
// nothing about what the others should have.
func (c *Core) level(now int64, largest int) (blocks int, fill float64) {
	sizes, fills := c.sizes[:0], c.fills[:0]
	for _, w := range c.workers {
		if w.warmth.known && c.routable(now, w) {
			sizes = append(sizes, w.warmth.blocks)
			fills = append(fills, w.warmth.fill(largest))
		}
	}
	c.sizes, c.fills = sizes, fills
	if len(sizes) == 0 {
		return 0, 0
	}
	slices.Sort(sizes)
	slices.Sort(fills)
	return sizes[len(sizes)/2], fills[len(fills)/2]
}

// choose lets the warm-up or the policy decide among the gathered candidates and counts what the warm-up
// wants counted.
func (c *Core) choose(now int64, ask Ask, p *policy.Picker) policy.Choice {
	if ask.Score == nil {
		return p.Pick(c.cands) // no prompt, no prefix
	}
	choice, fresh := c.warmup.PickFrom(now, len(ask.Tried) > 0, c.cands, c.sample, p)
	w := c.refs[choice.Index]
	if fresh {
		c.herd.placed(now, w)
	}
	if choice.Branch == policy.BranchDivert {
		w.warmth.divertedAt = now
		w.warmth.diverted++
	}
	return choice
}

// herd remembers where new prefixes went in the last policy.HerdWindow, oldest first.
type herd struct{ list []newPrefix }

type newPrefix struct {
	at     int64
	worker *Worker
}

func (h *herd) placed(now int64, w *Worker) {
	h.list = append(h.list, newPrefix{now, w})
	w.warmth.recent++
}

// forget takes out what is older than the window.
func (h *herd) forget(now int64) {
	n := 0
	for n < len(h.list) && h.list[n].at <= now-int64(policy.HerdWindow) {
		h.list[n].worker.warmth.recent--
		h.list[n].worker = nil
		n++
	}
	h.list = h.list[n:]
}

// SetNoThinSlice switches the handicap of that name: while on, thin and young workers get nothing by
// slice or diversion.
func (c *Core) SetNoThinSlice(on bool) { c.warmup.Starve = on }

// thin says whether the routing state calls the worker thin.
func (c *Core) thin(now int64, w *Worker) bool { return w.warmth.thin && c.routable(now, w) }

// held says whether some candidate holds a prefix of the request.
func held(cands []policy.Candidate) bool {
	for i := range cands { // by index: a candidate is large
		if cands[i].Overlap > 0 {
			return true
		}
	}
	return false
}

// ready is the one way to PhaseReady.
func (c *Core) ready(now int64, w *Worker) {
	if w.phase != contract.PhaseReady {
		c.admit(now, w)
	}
	c.setPhase(now, w, contract.PhaseReady)
}
