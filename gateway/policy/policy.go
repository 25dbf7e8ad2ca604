package policy

import (
	"fmt"
	"math/rand/v2"
)

// Names of the policies.
const (
	RoundRobin = "round_robin"
	Random     = "random"
	PowerOfTwo = "power_of_two"
	LeastLoad  = "least_load"
	CacheAware = "cache_aware"
	Reference  = "reference_cost"
)

// Names is the closed list.
var Names = []string{RoundRobin, Random, PowerOfTwo, LeastLoad, CacheAware, Reference}

// Branches of a decision: why this candidate.
const (
	BranchHit   = "event_hit"   // a holder of the deepest overlap
	BranchSpill = "event_spill" // someone holds a prefix, but every such holder is far busier than the mean
	BranchMiss  = "event_miss"  // nobody holds anything
	BranchLoad  = "load"        // a policy that does not look at caches

	BranchSlice  = "warmup_slice"  // a miss given to a thin or young worker
	BranchDivert = "warmup_divert" // a hit taken from its holder to fill a thin worker
)

// Candidate is one worker that may be chosen, as the policy sees it.
type Candidate struct {
	// URL tells candidates apart where ties are not drawn.
	URL string
	// Prompt is the request's length in tokens, BlockSize the worker's block in tokens; both may be 0, not
	// known.
	Prompt, BlockSize int
	// Overlap is the number of leading tokens of the request that the worker caches.
	Overlap int
	// InFlight are the gateway's own requests placed there and not ended.
	InFlight int
	// Reported says that the record below is fresh enough to be used.
	Reported bool
	// Waiting requests and WaitingUncached tokens in the engine's queue; WaitingUncached 0 = not
	// reported (or none, which KnowsUncached tells apart), then Waiting is priced.
	Waiting         int
	WaitingUncached int64
	KnowsUncached   bool
	// Usage is the used share of the KV pool, 0..1.
	Usage float64
	// Rate is the engine's generation rate, tokens/s; 0 = not reported.
	Rate float64
	// OwnTokens are prompt tokens dispatched there that the record cannot contain yet.
	OwnTokens int64
	// OwnUncached are those of OwnTokens that were not expected to be cached there.
	OwnUncached int64
	// Thin: its index is far emptier than the fleet's. Young: it came, or came back, a short while ago
	// and has not grown since.
	Thin, Young bool
	// DivertedNs is when a hit was last diverted there, mono ns, 0 = never; Recent are the new prefixes
	// placed there in the last HerdWindow.
	DivertedNs int64
	Recent     int
}

// Choice is a decision: an index into the candidates and the branch that led there.
type Choice struct {
	Index  int
	Branch string
}

// Sample says how candidates stand for a fleet that was not looked at whole. The zero value says that it was.
type Sample struct {
	// Fair is how many of the candidates, from the first, are a uniform draw from those that may be chosen.
	// The others are there because they cache the prompt.
	Fair int
	// Workers are how many the fleet has; Recent is the sum of theirs.
	Workers, Recent int
}

// Picker is a policy with its own random state. It is not safe for concurrent use.
type Picker struct {
	name string
	rng  *rand.Rand
	turn uint64
	// Scratch of a decision, reused.
	pool  []int
	kept  []int
	costs []float64
}

// New makes the named policy; every draw comes from seed.
func New(name string, seed uint64) (*Picker, error) {
	for _, known := range Names {
		if name == known {
			return &Picker{name: name, rng: rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))}, nil
		}
	}
	return nil, fmt.Errorf("policy %q is not known", name)
}

// Name is the policy's name.
func (p *Picker) Name() string { return p.name }

// Samples says whether the policy may be given a sample of a large fleet. The others are what they are
// called only when they see everybody.
func (p *Picker) Samples() bool { return p.name == CacheAware }

// Draw is a uniform number below n, from the picker's generator.
func (p *Picker) Draw(n int) int { return p.rng.IntN(n) }

// Pick chooses among cands, which must not be empty.
func (p *Picker) Pick(cands []Candidate) Choice {
	p.pool = all(p.pool[:0], len(cands))
	switch p.name {
	case RoundRobin:
		p.turn++
		return Choice{int((p.turn - 1) % uint64(len(cands))), BranchLoad}
	case Random:
		return Choice{p.rng.IntN(len(cands)), BranchLoad}
	case PowerOfTwo:
		return Choice{p.twoChoices(cands), BranchLoad}
	case LeastLoad:
		return Choice{p.leastWait(cands, p.pool), BranchLoad}
	case Reference:
		return referenceCost(cands)
	default:
		return p.cacheAware(cands, p.pool, len(cands))
	}
}

// twoChoices draws two different candidates and takes the one with less in flight.
func (p *Picker) twoChoices(cands []Candidate) int {
	a := p.rng.IntN(len(cands))
	if len(cands) == 1 {
		return a
	}
	b := p.rng.IntN(len(cands) - 1)
	if b >= a {
		b++
	}
	if cands[b].InFlight < cands[a].InFlight {
		return b
	}
	return a
}

// LeastInFlight is the last resort when no candidate is routable: the fewest of our own requests, ties
// drawn.
func (p *Picker) LeastInFlight(cands []Candidate) int {
	return p.leastInFlight(cands, func(*Candidate) bool { return true })
}

// leastInFlight is LeastInFlight among those that match; -1 without any.
func (p *Picker) leastInFlight(cands []Candidate, match func(*Candidate) bool) int {
	best, ties := -1, 0
	for i := range cands {
		switch c := &cands[i]; {
		case !match(c):
		case best < 0 || c.InFlight < cands[best].InFlight:
			best, ties = i, 1
		case c.InFlight == cands[best].InFlight:
			// Reservoir of one: the k-th tie replaces the held one with probability 1/k.
			if ties++; p.rng.IntN(ties) == 0 {
				best = i
			}
		}
	}
	return best
}

func all(dst []int, n int) []int {
	for i := range n {
		dst = append(dst, i)
	}
	return dst
}
