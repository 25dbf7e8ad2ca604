package policy

// The count gate: a holder is left out when it has more of our requests in flight than both bounds
// allow. The figures are those of the published fleet.
const (
	gateRelative = 1.5
	gateAbsolute = 10
)

// cacheAware takes the holders of the deepest overlap, drops those far above the fleet's mean load, and
// lets the expected wait decide among the rest; when the gate drops them all, the request spills to the
// others, whose caches then grow a copy, so that a hot prefix replicates.
//
// Only the candidates named in pool, which must not be empty, are looked at. The first fair candidates
// stand for the fleet where its mean load is meant.
func (p *Picker) cacheAware(cands []Candidate, pool []int, fair int) Choice {
	depth := 0
	for _, i := range pool {
		depth = max(depth, cands[i].Overlap)
	}
	mean := meanLoad(cands, pool, fair)
	if depth == 0 {
		return Choice{p.leastWait(cands, pool), BranchMiss}
	}
	keep := func(ok func(c *Candidate) bool) []int {
		p.kept = p.kept[:0]
		for _, i := range pool {
			if ok(&cands[i]) {
				p.kept = append(p.kept, i)
			}
		}
		return p.kept
	}
	if holders := keep(func(c *Candidate) bool { return c.Overlap == depth && !gated(c, mean) }); len(holders) > 0 {
		return Choice{p.leastWait(cands, holders), BranchHit}
	}
	if free := keep(func(c *Candidate) bool { return !gated(c, mean) }); len(free) > 0 {
		pool = free
	}
	choice := Choice{p.leastWait(cands, pool), BranchSpill}
	if cands[choice.Index].Overlap > 0 {
		choice.Branch = BranchHit
	}
	return choice
}

// meanLoad is the mean of what those of pool that are a fair draw have in flight; of all, if none is.
func meanLoad(cands []Candidate, pool []int, fair int) float64 {
	sum, n := 0, 0
	for _, i := range pool {
		if i < fair {
			sum += cands[i].InFlight
			n++
		}
	}
	if n == 0 {
		return meanLoad(cands, pool, len(cands))
	}
	return float64(sum) / float64(n)
}

func gated(c *Candidate, mean float64) bool {
	load := float64(c.InFlight)
	return load > mean*gateRelative && load > mean+gateAbsolute
}
