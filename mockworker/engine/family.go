package engine

import (
	"github.com/zeebo/xxh3"

	"fleetdrill/internal/tokens"
)

// What engines of other families share with this one, so that the same seed, request and timing profile
// mean the same under each of them.

// PassTime is the length in ns of the step-th model pass from 1, which computes p at this pace.
func (c Config) PassTime(p Pass, pace Pace, step int64) int64 {
	d := c.Timing.duration(p)
	if step == 1 {
		d += c.Timing.FirstStep
	}
	return pace.bend(d, c.Seed, step)
}

// Validate says what is out of range.
func (c Config) Validate() error { return c.validate() }

// Draw seeds the output tokens of a request.
func (c Config) Draw(id string) uint64 { return xxh3.HashStringSeed(id, c.Seed) }

// OutputToken is the token that a request with this draw has at a position, its prompt counted: a word,
// whatever happened before, so that a preempted request or a second run says the same.
func OutputToken(draw uint64, position int) uint32 {
	const words = tokens.Vocab - tokens.FirstWord
	mixed := tokens.DigestTerm(draw + uint64(position)*0x9e3779b97f4a7c15)
	return tokens.FirstWord + uint32(mixed%words)
}

// Averages are the moving averages of a load report.
type Averages struct{ gen, hit average }

// NewAverages are averages of nothing.
func NewAverages() Averages {
	return Averages{gen: average{weight: genRateWeight}, hit: average{weight: hitRateWeight}}
}

// Pass counts a pass of ns. One that only prefilled says nothing about the rate.
func (a *Averages) Pass(p Pass, ns int64) {
	if p.decodeSeqs == 0 || ns <= 0 {
		return
	}
	const second = 1e9
	a.gen.add(float64(p.decodeSeqs) * second / float64(ns))
}

// Hit counts a request that found so many of its tokens in the cache.
func (a *Averages) Hit(found, of int) { a.hit.add(float64(found) / float64(of)) }

// Fill sets GenRate and HitRate.
func (a *Averages) Fill(l *Load) { l.GenRate, l.HitRate = a.gen.value, a.hit.value }
