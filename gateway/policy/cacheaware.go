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
// Only the candidates named in pool, which must not be empty, are looked at.
func (p *Picker) cacheAware(cands []Candidate, pool []int) Choice {
	depth, mean := 0, 0.0
	for _, i := range pool {
		depth = max(depth, cands[i].Overlap)
		mean += float64(cands[i].InFlight)
	}
	mean /= float64(len(pool))
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

func gated(c *Candidate, mean float64) bool {
	load := float64(c.InFlight)
	return load > mean*gateRelative && load > mean+gateAbsolute
}
