package policy

// The reference cost is the cost function of a widely used router, as an outside baseline at its default
// weights (overlap credit 1, prefill scale 1, in-flight weight 0, temperature 0):
//
//	(queued uncached tokens + prompt) / block - cached blocks, at least 0, + blocks being decoded
//
// It has no ledger of sequences: every request in flight is taken to hold as many blocks as this one. Equal
// costs go to the smallest URL, so that an idle fleet fills from one end.

// referenceCost is the candidate with the least cost.
func referenceCost(cands []Candidate) Choice {
	best, least := 0, 0.0
	for i := range cands {
		c := &cands[i]
		cost := reference(c)
		if i == 0 || cost < least || cost == least && c.URL < cands[best].URL {
			best, least = i, cost
		}
	}
	if cands[best].Overlap > 0 {
		return Choice{best, BranchHit}
	}
	for i := range cands {
		if cands[i].Overlap > 0 {
			return Choice{best, BranchSpill}
		}
	}
	return Choice{best, BranchMiss}
}

// reference is a candidate's cost, in blocks. Without a record, or one that does not tell the uncached
// tokens of its queue, only the request itself is priced.
func reference(c *Candidate) float64 {
	block := max(c.BlockSize, 1)
	prefill := int64(c.Prompt)
	if c.Reported && c.KnowsUncached {
		prefill += c.WaitingUncached + c.OwnUncached
	}
	blocks := (c.Prompt + block - 1) / block
	credit := float64(c.Overlap / block)
	return max(0, float64(prefill)/float64(block)-credit) + float64(c.InFlight*blocks)
}
