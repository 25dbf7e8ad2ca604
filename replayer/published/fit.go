package published

import (
	"context"
	"fmt"
	"math"

	"golang.org/x/sync/errgroup"

	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/fit"
	"fleetdrill/replayer/plan"
)

// first is where the search begins, in ns: the published calibration as far as five coefficients can say it.
// A batched prefill token, decoding at a full pool over its tokens, and its overhead are that calibration's;
// the step, a sequence and the context of a prefill are plausible for 8 billion parameters.
var first = []float64{12e6, 10_300, 20_000, 22, 0.05, 24e6}

// pull is that of mockworker/fit: what two rows do not determine stays near where it began.
const pull = 0.004 * 0.004

// Fit finds the coefficients with which the full-pool rows come closest to hardware, reuse left out: it is
// the trace's, not the engine's. calls bounds the search, about a second each.
func Fit(ctx context.Context, p *plan.Plan, calls int, progress func(call int, worst float64)) (fit.Coefficients, error) {
	start, step := make([]float64, len(first)), make([]float64, len(first))
	for i, v := range first {
		start[i], step[i] = math.Log(v), 0.4
	}
	var failed error
	n := 0
	x, _ := fit.Minimise(func(x []float64) float64 {
		if failed != nil {
			return math.Inf(1)
		}
		errs, err := miss(ctx, p, Profile(coefficients(x)))
		if err != nil {
			failed = err
			return math.Inf(1)
		}
		sum, worst, f := 0.0, 0.0, 0.0
		for _, e := range errs {
			sum += math.Pow(e, 4)
			worst = max(worst, math.Abs(e))
		}
		for i := range x {
			f += pull * (x[i] - start[i]) * (x[i] - start[i])
		}
		n++
		if progress != nil {
			progress(n, worst)
		}
		return f + math.Sqrt(sum/float64(len(errs)))
	}, start, step, calls, 1e-2)
	return coefficients(x), failed
}

// miss is the logarithm of model over hardware, per figure of the fitted rows but reuse.
func miss(ctx context.Context, p *plan.Plan, prof engine.Profile) ([]float64, error) {
	var got [fitted]Figures
	g, ctx := errgroup.WithContext(ctx)
	for i := range got {
		g.Go(func() (err error) {
			got[i], err = simulate(ctx, p, prof, scenarios[i], 0)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	var out []float64
	for i := range got {
		model, hardware := got[i].list(), scenarios[i].Hardware.list()
		for k := range len(names) - 1 {
			out = append(out, math.Log(max(model[k], 1e-3)/hardware[k]))
		}
	}
	return out, nil
}

func coefficients(x []float64) fit.Coefficients {
	v := make([]float64, len(x))
	for i := range x {
		v[i] = fit.Significant(math.Exp(min(x[i], 21))) // e^21 ns are 1.3 s
	}
	return fit.Coefficients{A: v[0], B: v[1], C: v[2], D: v[3], E: v[4], Overhead: int64(v[5])}
}

// Profile is a profile of the published fleet with these coefficients.
func Profile(c fit.Coefficients) engine.Profile {
	figure := func(v float64, basis string) *engine.Figure { return &engine.Figure{Value: v, Basis: basis} }
	return engine.Profile{
		Name:   "refitted",
		StepNs: figure(c.A, engine.BasisFitted), PrefillTokenNs: figure(c.B, engine.BasisFitted), DecodeSeqNs: figure(c.C, engine.BasisFitted),
		DecodeContextNs: figure(c.D, engine.BasisFitted), PrefillContextNs: figure(c.E, engine.BasisFitted),
		RequestOverheadNs: figure(float64(c.Overhead), engine.BasisFitted),
		NumBlocks:         *figure(FullBlocks, engine.BasisFitted), BlockSize: *figure(16, engine.BasisFitted),
		MaxNumSeqs: *figure(Seqs, engine.BasisFitted), MaxNumBatchedTokens: *figure(16_384, engine.BasisFitted),
	}
}

// YAML is that profile as a file, under a name of its own.
func YAML(name string, c fit.Coefficients) []byte {
	return fmt.Appendf(nil, `# Qwen3-8B on the published fleet by five coefficients, fitted to its two full-pool rows (cache_aware and
# round_robin) but their reuse, on another trace than was published: "fleetdrill worker fit --published-fleet".
# Sizes were published.
name: %s
about: Qwen3-8B on the published fleet, fitted to its full-pool rows
%snum_blocks:               {value: %d, basis: fitted}
block_size:               {value: 16, basis: fitted}
max_num_seqs:             {value: %d, basis: fitted}
max_num_batched_tokens:   {value: 16384, basis: fitted}
`, name, c.YAML(), FullBlocks, Seqs)
}
