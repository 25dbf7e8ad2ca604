package fleet

import (
	"math"
	"slices"

	"fleetdrill/gateway/index"
	"fleetdrill/gateway/policy"
)

// In a fleet above wide workers a decision looks at a sample and at the deepest holders, because a look at
// every worker costs more than anything else in it: of 1,024, thirty microseconds. The figures are those of
// the published fleet.
const (
	sampleSize = 16             // routable workers drawn, and deepest holders looked at
	maxDraws   = 2 * sampleSize // draws for them; repeats and workers that are out are dropped
	wide       = 2 * sampleSize
	// maxLevels bounds how many overlaps are gone down from the deepest while all its holders are out.
	maxLevels = 8
)

// glance fills the candidate lists with a sample of the routable workers and with the routable holders of
// the deepest overlap that has any, at most sampleSize of them, drawn. It reports false when the whole
// fleet has to be looked at: a small one, a policy that wants it, somebody to be warmed up (counts decide
// who gets what), or nobody routable in the sample.
func (c *Core) glance(now int64, ask Ask, p *policy.Picker) bool {
	if len(c.workers) <= wide || !p.Samples() || ask.Score != nil && ask.Deepest == nil || c.anyWarming(now) {
		return false
	}
	c.nobody()
	c.glances++
	for draws := 0; draws < maxDraws && len(c.refs) < sampleSize; draws++ {
		if w := c.workers[p.Draw(len(c.workers))]; w.glance != c.glances && c.eligible(now, ask, w) {
			w.glance = c.glances
			c.consider(now, ask, w)
		}
	}
	c.sample = policy.Sample{Fair: len(c.refs), Workers: len(c.workers), Recent: len(c.herd.list)}
	return len(c.refs) > 0 && (ask.Deepest == nil || c.addDeepest(now, ask, p))
}

// addDeepest appends the deepest holders that may be chosen to the candidates, unless they were drawn
// already. It reports false when it gave up looking for one.
func (c *Core) addDeepest(now int64, ask Ask, p *policy.Picker) bool {
	below := math.MaxInt
	for range maxLevels {
		below, c.deepest = ask.Deepest(below, c.deepest[:0])
		if below == 0 {
			return true
		}
		found := 0
		// A shuffle that ends early: who stands at i was drawn among those from i on.
		for i := 0; i < len(c.deepest) && found < sampleSize; i++ {
			if len(c.deepest) > sampleSize {
				k := i + p.Draw(len(c.deepest)-i)
				c.deepest[i], c.deepest[k] = c.deepest[k], c.deepest[i]
			}
			h := int(c.deepest[i])
			if h >= len(c.owners) || c.owners[h] == nil || !c.eligible(now, ask, c.owners[h]) {
				continue
			}
			found++
			if w := c.owners[h]; w.glance != c.glances {
				w.glance = c.glances
				c.consider(now, ask, w)
			}
		}
		if found > 0 {
			return true
		}
	}
	return false
}

func (c *Core) eligible(now int64, ask Ask, w *Worker) bool {
	return c.routable(now, w) && !slices.Contains(ask.Tried, w)
}

// own notes whose holders are w's, nobody's when w is nil.
func (c *Core) own(holders []index.Holder, w *Worker) {
	for _, h := range holders {
		if n := int(h) + 1 - len(c.owners); n > 0 {
			c.owners = append(c.owners, make([]*Worker, n)...)
		}
		c.owners[h] = w
	}
}

// anyWarming says whether some routable worker is thin or young.
func (c *Core) anyWarming(now int64) bool {
	return slices.ContainsFunc(c.warming, func(w *Worker) bool {
		return !w.removed && (w.warmth.thin || w.young(now)) && c.routable(now, w)
	})
}
