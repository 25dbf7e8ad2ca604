package synth

import (
	"errors"
	"fmt"
)

// Range is an inclusive range of token counts, drawn from uniformly.
type Range struct{ Min, Max int }

// mean of the range.
func (r Range) mean() float64 { return float64(r.Min+r.Max) / 2 }

// meanSquare is the mean of the square of a value drawn from the range.
func (r Range) meanSquare() float64 {
	n := float64(r.Max - r.Min + 1)
	return r.mean()*r.mean() + (n*n-1)/12
}

// Spec describes a load.
type Spec struct {
	// Name is the load's id; it begins its request ids and names its sub-streams, so that two loads of
	// one seed do not send each other's prompts.
	Name string
	Seed uint64
	// Model is the model the requests ask for; empty leaves it out of the body, and gateways and engines
	// take their own.
	Model string
	// BlockSize of the engines in tokens; 0 means 16.
	BlockSize int

	// Rate is requests per second of an open loop. Request i leaves in slot i, the slots being 1/Rate
	// long, at a drawn instant of the slot's first half: even enough that a rate holds in any second,
	// uneven enough not to beat with step times and sampling periods.
	Rate float64
	// Poisson draws exponential gaps of mean 1/Rate in place of slots.
	Poisson bool
	// Concurrency asks for a closed loop: with it Rate is 0 and every offset is 0, and whoever sends keeps
	// so many requests open.
	Concurrency int
	// Count ends the sequence after so many requests; 0 means it never ends.
	Count int

	// Input is the prompt's tokens after its head or fresh prefix, Output the tokens to generate.
	Input, Output Range
	// Heads shared prompt beginnings of HeadTokens tokens each, chosen uniformly. NewPrefix is the share,
	// 0 to 1, of requests that begin with HeadTokens tokens of their own instead. Without heads every
	// request does.
	Heads      int
	HeadTokens int
	NewPrefix  float64
	// HitsOnly repeats a fixed set of prompts, one per head (at least one), in drawn order; NewPrefix is
	// then ignored. The set follows from the seed alone, so a later hits-only load of the same seed and
	// shape finds it cached.
	HitsOnly bool
	// Trickle is shorthand for 10 requests a second with unique prompts behind one head of four blocks.
	// What is set beside it wins.
	Trickle bool
}

const (
	defaultBlockSize = 16
	trickleRate      = 10 // requests per second
	trickleBlocks    = 4  // of the head
)

// expanded fills in the defaults and what Trickle stands for.
func (s Spec) expanded() Spec {
	if s.BlockSize == 0 {
		s.BlockSize = defaultBlockSize
	}
	if !s.Trickle {
		return s
	}
	if s.Rate == 0 && s.Concurrency == 0 {
		s.Rate = trickleRate
	}
	if s.Heads == 0 {
		s.Heads = 1
	}
	if s.HeadTokens == 0 {
		s.HeadTokens = trickleBlocks * s.BlockSize
	}
	// A request with at most four blocks of overlap that are under half of it counts as a miss, so five
	// blocks and more after the head make every trickled request one: that is what feeds a thin worker.
	if s.Input == (Range{}) {
		s.Input = Range{6 * s.BlockSize, 10 * s.BlockSize}
	}
	if s.Output == (Range{}) {
		s.Output = Range{8, 16}
	}
	return s
}

// Validate says what is wrong with the spec, everything at once.
func (s Spec) Validate() error {
	s = s.expanded()
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(s.Rate >= 0 && s.Rate <= 1e6, "rate %v: want 0 to 1,000,000 requests per second", s.Rate)
	check((s.Rate > 0) != (s.Concurrency > 0), "rate %v and concurrency %d: want exactly one of them", s.Rate, s.Concurrency)
	check(s.Concurrency >= 0 && s.Count >= 0, "concurrency %d, count %d: want no negative number", s.Concurrency, s.Count)
	check(s.Input.Min >= 0 && s.Input.Max >= s.Input.Min, "input %d..%d: want a range of token counts", s.Input.Min, s.Input.Max)
	check(s.Output.Min >= 1 && s.Output.Max >= s.Output.Min, "output %d..%d: want a range that starts at 1 or above", s.Output.Min, s.Output.Max)
	check(s.Heads >= 0 && s.HeadTokens >= 0, "heads %d of %d tokens: want no negative number", s.Heads, s.HeadTokens)
	check(s.Heads == 0 || s.HeadTokens > 0, "heads %d of %d tokens: want heads of at least one token", s.Heads, s.HeadTokens)
	check(s.HeadTokens+s.Input.Min > 0, "input %d..%d without head tokens: a prompt needs at least one token", s.Input.Min, s.Input.Max)
	check(s.NewPrefix >= 0 && s.NewPrefix <= 1, "new_prefix %v: want a share from 0 to 1", s.NewPrefix)
	check(s.BlockSize > 0, "block size %d: want at least one token", s.BlockSize)
	return errors.Join(errs...)
}

// freshShare is the share of requests that begin with a prefix of their own.
func (s Spec) freshShare() float64 {
	switch {
	case s.HitsOnly:
		return 0
	case s.Heads == 0:
		return 1
	}
	return s.NewPrefix
}
