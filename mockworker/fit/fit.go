package fit

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"fleetdrill/internal/rng"
	"fleetdrill/mockworker/engine"
)

// What is assumed of a run that does not say.
const (
	assumedBlockSize = 16   // tokens, vLLM's default
	assumedSeqs      = 256  // vLLM's default
	assumedBudget    = 2048 // tokens a step, vLLM's default on small accelerators
)

// How long the search goes on. A trial takes about 10 ms for 300 requests of 650 tokens.
const (
	callsPerStart = 200
	callsPerRound = 300
	maxRounds     = 6
	// enough is the share by which a round must better the one before to be followed by another.
	enough    = 0.02
	tolerance = 1e-3
)

// pull keeps what the run does not determine near where the search began: a coefficient that is e times its
// first guess costs the objective as much as 0.4 % on every figure, which is about how far a run is from
// its own repetition.
const pull = 0.004 * 0.004

// Options say how to fit.
type Options struct {
	// On is how many of the first requests the objective sees; 0 is all. All are simulated.
	On int
	// Seed decides the directions of later rounds.
	Seed uint64
	// Sizes override what the run recorded or what is assumed, where not 0.
	Sizes Sizes
	// Progress, if set, is called after each round.
	Progress func(round int, worst Error)
}

// Fitted is a fit and how good it is.
type Fitted struct {
	Run   *Run
	Sizes Sizes
	// Assumed says in words what of Sizes the run did not record.
	Assumed []string
	Timing  engine.Timing
	// On is how many requests the objective saw. Seen are the figures of those, All those of all requests.
	On        int
	Seen, All []Error
	// Trials counts simulations.
	Trials int
}

// Check says what is wrong with the options for a run.
func (o Options) Check(r *Run) error {
	if o.On < 0 || o.On > len(r.Requests) {
		return fmt.Errorf("fitting on the first %d requests: the run has %d, want 1 to that", o.On, len(r.Requests))
	}
	return nil
}

// SizesOf are the run's engine sizes: o's where given, else recorded, else assumed, and then said.
func SizesOf(r *Run, o Sizes) (s Sizes, assumed []string) {
	pick := func(name string, given, recorded, otherwise int, why string) int {
		switch {
		case given > 0:
			return given
		case recorded > 0:
			return recorded
		}
		assumed = append(assumed, fmt.Sprintf("%s %d (%s)", name, otherwise, why))
		return otherwise
	}
	s.BlockSize = pick("block_size", o.BlockSize, r.BlockSize, assumedBlockSize, "vLLM's default")
	s.MaxNumSeqs = pick("max_num_seqs", o.MaxNumSeqs, r.MaxNumSeqs, assumedSeqs, "vLLM's default")
	s.MaxNumBatchedTokens = pick("max_num_batched_tokens", o.MaxNumBatchedTokens, r.MaxNumBatchedTokens, assumedBudget, "vLLM's default")
	longest := 0
	for _, q := range r.Requests {
		longest = max(longest, q.Input+q.Output)
	}
	room := s.MaxNumSeqs*((longest+s.BlockSize-1)/s.BlockSize) + 1
	s.NumBlocks = pick("num_blocks", o.NumBlocks, r.NumBlocks, room, "room for max_num_seqs of the longest request, so never short")
	return s, assumed
}

// Fit finds the five coefficients and the request overhead. Equal runs and options give equal results. It ends early only when ctx
// does.
func Fit(ctx context.Context, r *Run, o Options) (*Fitted, error) {
	if err := o.Check(r); err != nil {
		return nil, err
	}
	f := newFitted(r, o)
	sim, err := NewSimulator(r, f.Sizes)
	if err != nil {
		return nil, err
	}
	g := guessFrom(r.Requests[:f.On])
	s := &search{ctx: ctx, sim: sim, on: f.On, real: r.Real(f.On), first: g.unknowns(shares[0])}
	best := s.run(g, o)
	if s.err != nil {
		return nil, s.err
	}
	f.Timing, f.Trials = rounded(timingOf(best)), s.trials
	return f, f.score(sim)
}

// Score is how good a timing is for a run, without fitting.
func Score(r *Run, o Options, t engine.Timing) (*Fitted, error) {
	if err := o.Check(r); err != nil {
		return nil, err
	}
	f := newFitted(r, o)
	sim, err := NewSimulator(r, f.Sizes)
	if err != nil {
		return nil, err
	}
	f.Timing = t
	return f, f.score(sim)
}

func newFitted(r *Run, o Options) *Fitted {
	f := &Fitted{Run: r, On: o.On}
	if f.On == 0 {
		f.On = len(r.Requests)
	}
	f.Sizes, f.Assumed = SizesOf(r, o.Sizes)
	return f
}

func (f *Fitted) score(sim *Simulator) error {
	times, err := sim.Run(f.Timing)
	if err != nil {
		return err
	}
	f.Seen = Compare(f.Run.Real(f.On), times[:f.On])
	f.All = Compare(f.Run.Real(len(times)), times)
	return nil
}

// search is one fit under way. Its unknowns are the logarithms of the coefficients, so that none can become
// negative and each step is a share.
type search struct {
	ctx    context.Context
	sim    *Simulator
	on     int
	real   []Times
	first  []float64
	trials int
	err    error
}

// run begins from several guesses, and goes on from the best of what they lead to in rounds of the simplex
// with fresh directions: one that has become flat in some direction does not find out by itself.
func (s *search) run(g guess, o Options) []float64 {
	best := vertex{f: math.Inf(1)}
	for _, share := range shares {
		if v := minimise(s.objective, g.unknowns(share), steps(nil), callsPerStart, tolerance); v.f < best.f {
			best = v
		}
	}
	draw := rng.Stream(o.Seed, "fit")
	for round := 0; round < maxRounds && s.err == nil; round++ {
		s.tell(round, best.x, o.Progress)
		before := best.f
		if v := minimise(s.objective, best.x, steps(draw), callsPerRound, tolerance); v.f < best.f {
			best = v
		}
		if best.f > before*(1-enough) && round > 0 {
			break
		}
	}
	return best.x
}

// steps are how far a simplex reaches at first, along each unknown: drawn, or without a draw half of e.
func steps(draw *rand.Rand) []float64 {
	s := make([]float64, unknowns)
	for i := range s {
		s[i] = 0.5
		if draw != nil {
			s[i] = (0.15 + 0.35*draw.Float64()) * float64(1-2*draw.IntN(2))
		}
	}
	return s
}

func (s *search) tell(round int, x []float64, progress func(int, Error)) {
	if progress == nil {
		return
	}
	if times, err := s.sim.Run(timingOf(x)); err == nil {
		progress(round, Worst(Compare(s.real, times[:s.on])))
	}
}

// objective weighs the twelve figures of the scored requests by the fourth power of their error, which
// minds the worst most and yet is smooth, and adds the pull.
func (s *search) objective(x []float64) float64 {
	if s.err != nil {
		return math.Inf(1)
	}
	if s.err = s.ctx.Err(); s.err != nil {
		return math.Inf(1)
	}
	s.trials++
	times, err := s.sim.Run(timingOf(x))
	if err != nil {
		s.err = err
		return math.Inf(1)
	}
	sum := 0.0
	for _, e := range Compare(s.real, times[:s.on]) {
		if e.Real > 0 { // a run of one-token answers has no TPOT
			sum += math.Pow(math.Log(e.Model/e.Real), 4)
		}
	}
	f := math.Sqrt(sum / float64(numFigures))
	for i := range x {
		f += pull * (x[i] - s.first[i]) * (x[i] - s.first[i])
	}
	return f
}

// unknowns is how many numbers are sought: the five coefficients, the overhead and the first step's extra.
const unknowns = 7

// timingOf turns the unknowns into a timing.
func timingOf(x []float64) engine.Timing {
	var v [unknowns]float64
	for i := range v {
		v[i] = math.Exp(min(x[i], 21)) // e^21 ns are 1.3 s
	}
	return engine.Timing{
		A: v[0], B: v[1], C: v[2], D: v[3], E: v[4],
		Overhead: int64(math.Round(v[5])), FirstStep: int64(math.Round(v[6])),
	}
}

// share is how a usual step's time is split at first: what is fixed, what goes with the number of decoding
// sequences, and what with their context. The rest is prefill's.
type share struct{ fixed, seqs, context float64 }

// shares are where the search begins. A pool that is always full tells little about which it is, so a single
// start may end far from the best.
var shares = [...]share{{0.7, 0.1, 0.1}, {0.8, 0.08, 0.08}, {0.3, 0.2, 0.4}, {0.3, 0.5, 0.1}}

// guess is what the scored requests show at first sight, in ns and tokens.
type guess struct {
	step    float64 // a usual one
	token   float64 // of prefill, at most
	running float64 // sequences
	context float64 // of one
	first   float64 // extra of the first request
}

func guessFrom(seen []Request) guess {
	var tpot []float64
	g := guess{step: 10e6, token: math.Inf(1)} // the step is for runs without a second token
	busy, end := 0.0, int64(1)
	for _, q := range seen {
		t := q.Real()
		if v, ok := t.TPOT(); ok {
			tpot = append(tpot, v)
		}
		g.token = min(g.token, float64(t.TTFT)/float64(q.Input))
		busy += float64(t.Latency - t.TTFT)
		g.context += (float64(q.Input) + float64(q.Output)/2) / float64(len(seen))
		end = max(end, q.Last)
	}
	if len(tpot) > 0 {
		slices.Sort(tpot)
		g.step = max(quantile(tpot, 0.5), 1)
	}
	g.running = max(busy/float64(end), 1)
	first := seen[0]
	g.first = max(float64(first.Real().TTFT)-g.token*float64(first.Input)-2*g.step, g.step/10)
	return g
}

// unknowns are the guess in the form of the search. A prompt's context is guessed to double the cost of a
// token after 30,000 of them, and the overhead to be half a step.
func (g guess) unknowns(s share) []float64 {
	x := []float64{
		s.fixed * g.step, g.token, s.seqs * g.step / g.running, s.context * g.step / g.running / g.context,
		g.token / 30_000, g.step / 2, g.first,
	}
	for i := range x {
		x[i] = math.Log(max(x[i], 1e-6))
	}
	return x
}
