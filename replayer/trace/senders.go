package trace

import (
	"math/rand/v2"

	"fleetdrill/internal/rng"
)

// The chances in 100 that a client changes its state from a slot to the next: bursts of some 12 s and
// pauses of some 30 s on average.
const (
	onToOff = 25
	offToOn = 10
)

// senders says which clients are active, slot by slot. Its random stream is its own, so that a first pass
// over it can be repeated without the rows. All choices are of whole numbers, here and in
// talks, because floating-point functions differ between processors in the last bit.
type senders struct {
	draw    *rand.Rand
	on      []bool
	weight  int  // of the active ones
	started bool // slot 0 has the states that newSenders drew
}

func newSenders(s Shape) *senders {
	out := &senders{draw: rng.Stream(s.Seed, "trace/clients"), on: make([]bool, s.Clients)}
	for i := range out.on {
		// As it would be in the long run; the first client is active, so that the trace begins at 0.
		out.on[i] = chance(out.draw, offToOn*100/(offToOn+onToOff)) || i == 0
	}
	return out
}

// step gives the weight of the clients that are active in the next slot. The first call is slot 0.
func (s *senders) step() int {
	if s.started {
		s.change()
	}
	s.started = true
	s.weight = s.sum()
	return s.weight
}

func (s *senders) change() {
	for i, on := range s.on {
		if on {
			s.on[i] = !chance(s.draw, onToOff)
		} else {
			s.on[i] = chance(s.draw, offToOn)
		}
	}
}

func (s *senders) sum() (weight int) {
	for i, on := range s.on {
		if on {
			weight += clientWeight(i)
		}
	}
	return weight
}

// pick is an active client, chosen by weight. There must be one.
func (s *senders) pick(draw *rand.Rand) int {
	rest := draw.IntN(s.weight)
	for i, on := range s.on {
		if !on {
			continue
		}
		if rest -= clientWeight(i); rest < 0 {
			return i
		}
	}
	return 0 // nobody is active, which the caller has excluded
}

// clientWeight is how much client i sends beside the others: the first one five times as much as the
// 41st, none more than a small share.
func clientWeight(i int) int { return 1 + 1000/(10+i) }

// chance is true in percent of 100 cases.
func chance(draw *rand.Rand, percent int) bool { return draw.IntN(100) < percent }
