package policy

// Constants of the expected wait.
const (
	tokensPerWaiting = 1024  // prompt tokens behind a waiting request whose tokens are not reported
	defaultRate      = 2000  // tokens/s drained by an engine that does not report its rate
	usageWeight      = 0.15  // seconds at half-full pool; grows without bound towards full
	usageMax         = 0.999 // keeps the usage term finite
	tieWidth         = 1e-6  // seconds: differences below it are noise
)

// leastWait is the candidate of pool with the smallest expected wait; candidates within tieWidth of it
// are drawn from uniformly.
func (p *Picker) leastWait(cands []Candidate, pool []int) int {
	p.costs = waits(p.costs[:0], cands, pool)
	least := p.costs[0]
	for _, c := range p.costs {
		least = min(least, c)
	}
	best, ties := pool[0], 0
	for i, c := range p.costs {
		if c-least > tieWidth {
			continue
		}
		// Reservoir of one: the k-th tie replaces the held one with probability 1/k.
		if ties++; p.rng.IntN(ties) == 0 {
			best = pool[i]
		}
	}
	return best
}

// waits appends each pool member's expected wait in seconds. A worker without a record is priced as the
// best reporting peer plus its own requests in flight, so it is neither taken for idle nor starved;
// when nobody reports, the number in flight decides.
func waits(dst []float64, cands []Candidate, pool []int) []float64 {
	best, rates, rated, reporting := 0.0, 0.0, 0, 0
	for _, i := range pool {
		c := &cands[i]
		if !c.Reported {
			continue
		}
		if w := Wait(c); reporting == 0 || w < best {
			best = w
		}
		reporting++
		if c.Rate > 0 {
			rates += c.Rate
			rated++
		}
	}
	rate := float64(defaultRate)
	if rated > 0 {
		rate = rates / float64(rated)
	}
	for _, i := range pool {
		c := &cands[i]
		switch {
		case c.Reported:
			dst = append(dst, Wait(c))
		case reporting > 0:
			dst = append(dst, best+float64(c.InFlight)*tokensPerWaiting/rate)
		default:
			dst = append(dst, float64(c.InFlight))
		}
	}
	return dst
}

// Wait is the expected wait of a candidate with a record, in seconds: the queue in tokens over the drain
// rate, plus a term that grows as the KV pool fills.
func Wait(c *Candidate) float64 {
	queued := float64(c.WaitingUncached)
	if c.WaitingUncached <= 0 {
		queued = float64(c.Waiting) * tokensPerWaiting
	}
	rate := c.Rate
	if rate <= 0 {
		rate = defaultRate
	}
	usage := min(max(c.Usage, 0), usageMax)
	return (queued+float64(c.OwnTokens))/rate + usageWeight*usage/(1-usage)
}
