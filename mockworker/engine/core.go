package engine

import (
	"math"

	"fleetdrill/internal/tokens"
)

// Core is one rank's engine as its surroundings know it: the step loop drives it, the admin port looks at
// it between two steps. *Engine is vLLM's; an engine of another family is one more implementation. None is
// safe for concurrent use, and none knows a clock: now and every stamp are ns of the caller's.
type Core interface {
	// Add queues a request at now. It fails with ErrBadRequest, ErrTooLong or ErrNeverFits, and then
	// nothing has changed.
	Add(now int64, r Request) error
	// Abort makes a request leave at the next step, wherever it is; its last Output has Finish "abort". It
	// returns false when there is no such request or it already produced its last output.
	Abort(now int64, id string) bool
	// Step schedules one model pass that begins at now.
	Step(now int64) StepResult
	// ResetPrefixCache empties the cache and announces it with the next step that publishes. With a block
	// in use it changes nothing and returns false, unless preempt takes the running requests out first.
	ResetPrefixCache(preempt bool) bool
	// DropCache empties the cache and tells nobody; what runs computes everything anew.
	DropCache()
	// SetPace makes the model passes that begin from now on slower or uneven.
	SetPace(p Pace)
	// Load and Counters are snapshots.
	Load() Load
	Counters() Counters
	// Match is the number of leading blocks of a prompt that are in the device tier now, whole blocks only
	// and without the rule that the last token is always computed. Empty strings are no adapter, no salt.
	Match(ids []uint32, lora, salt string) int
	// Blocks yields every distinct (hash, medium, group) that is cached, in no order that callers may rely
	// on, until yield returns false.
	Blocks(yield func(Block) bool)
}

// Pace bends the step time. The zero value changes nothing.
type Pace struct {
	// Factor multiplies the length of a step; 0 is 1.
	Factor float64
	// Jitter is the largest share by which a step is longer or shorter, drawn evenly from the engine's
	// seed: 0.1 is from 90 to 110 %.
	Jitter float64
}

// bend is the length in ns of a model pass that would take d, the step-th of an engine with this seed.
func (p Pace) bend(d int64, seed uint64, step int64) int64 {
	if p == (Pace{}) {
		return d
	}
	f := p.Factor
	if f == 0 {
		f = 1
	}
	if p.Jitter > 0 {
		const range53 = 1 << 53
		u := float64(tokens.DigestTerm(seed+uint64(step)*0x9e3779b97f4a7c15)>>11) / range53
		f *= 1 + float64(p.Jitter*(2*u-1))
	}
	return int64(math.Round(float64(d) * f))
}

var _ Core = (*Engine)(nil)
