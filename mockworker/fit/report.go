package fit

import (
	"fmt"
	"math"
	"strings"
	"text/tabwriter"

	"fleetdrill/mockworker/engine"
)

// Report is a fit as it is printed; its JSON keys are those of `worker fit --json`.
type Report struct {
	// Profile is the name of the profile that was fitted or scored.
	Profile      string       `json:"profile"`
	Coefficients Coefficients `json:"coefficients"`
	// FittedOn is how many of the Requests the objective saw, 0 when nothing was fitted.
	FittedOn int `json:"fitted_on"`
	// Errors are the twelve figures over all requests, Worst the largest of them as a fraction.
	Errors      []Error `json:"errors"`
	Worst       float64 `json:"worst"`
	WorstFigure string  `json:"worst_figure"`
	// SeenErrors are over the requests that the objective saw, when those are not all.
	SeenErrors []Error `json:"seen_errors,omitempty"`

	Run      string   `json:"run"`
	Model    string   `json:"model"`
	Version  string   `json:"engine_version"`
	Requests int      `json:"requests"`
	Sizes    Sizes    `json:"sizes"`
	Assumed  []string `json:"assumed"`
	Trials   int      `json:"trials"`
	// Sensitivity is what changes when one thing is off, when it was asked for.
	Sensitivity []Change `json:"sensitivity,omitempty"`
}

// Coefficients are a timing in ns, see engine.Timing; with a curve the first five are 0.
type Coefficients struct {
	A        float64 `json:"a_step_ns"`
	B        float64 `json:"b_prefill_token_ns"`
	C        float64 `json:"c_decode_seq_ns"`
	D        float64 `json:"d_decode_context_token_ns"`
	E        float64 `json:"e_prefill_token_context_ns"`
	Overhead int64   `json:"request_overhead_ns"`
	First    int64   `json:"first_step_extra_ns"`
}

// Report condenses a fit of the run called run to the profile called name.
func (f *Fitted) Report(run, name string) Report {
	worst := Worst(f.All)
	r := Report{
		Profile: name, FittedOn: f.On, Errors: f.All, Worst: math.Abs(worst.Error), WorstFigure: worst.Figure,
		Run: run, Model: f.Run.Model, Version: f.Run.Version, Requests: len(f.Run.Requests), Sizes: f.Sizes, Assumed: f.Assumed, Trials: f.Trials,
		Coefficients: Coefficients{
			A: f.Timing.A, B: f.Timing.B, C: f.Timing.C, D: f.Timing.D, E: f.Timing.E,
			Overhead: f.Timing.Overhead, First: f.Timing.FirstStep,
		},
	}
	if f.Trials == 0 {
		r.FittedOn = 0
	}
	if r.Assumed == nil {
		r.Assumed = []string{}
	}
	if f.On < len(f.Run.Requests) {
		r.SeenErrors = f.Seen
	}
	return r
}

// Text is the report for people.
func (r Report) Text() string {
	var b strings.Builder
	how := fmt.Sprintf("fitted on the first %d, %d trials", r.FittedOn, r.Trials)
	if r.FittedOn == 0 {
		how = "not fitted"
	}
	fmt.Fprintf(&b, "%s: %s, vLLM %s, %d requests; profile %s, %s\n", r.Run, r.Model, r.Version, r.Requests, r.Profile, how)
	fmt.Fprintf(&b, "%d blocks of %d tokens, %d sequences, %d tokens a step", r.Sizes.NumBlocks, r.Sizes.BlockSize, r.Sizes.MaxNumSeqs, r.Sizes.MaxNumBatchedTokens)
	if len(r.Assumed) > 0 {
		fmt.Fprintf(&b, "; assumed: %s", strings.Join(r.Assumed, ", "))
	}
	c := r.Coefficients
	if c.A+c.B+c.C+c.D+c.E > 0 {
		fmt.Fprintf(&b, "\na step: %.2f ms + %.1f us a prefill token + %.1f us a decoding sequence + %.1f ns a token of their context + %.2f ns a prefill token and token of context",
			c.A/1e6, c.B/1e3, c.C/1e3, c.D, c.E)
	}
	fmt.Fprintf(&b, "\na request: %.1f ms before its first step; the first step of all: %.0f ms more\n\n", float64(c.Overhead)/1e6, float64(c.First)/1e6)
	r.table(&b)
	fmt.Fprintf(&b, "\nworst: %s, %.1f %%\n", r.WorstFigure, r.Worst*100)
	r.sensitivityText(&b)
	return b.String()
}

// table is the twelve figures of all requests, and beside them those of the requests that were seen.
func (r Report) table(b *strings.Builder) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "figure, s\treal\tmodel\terror\t")
	if r.SeenErrors != nil {
		fmt.Fprintf(w, "first %d: real\tmodel\terror\t", r.FittedOn)
	}
	fmt.Fprintln(w)
	for i, e := range r.Errors {
		fmt.Fprintf(w, "%s\t%.4f\t%.4f\t%+.1f %%\t", e.Figure, e.Real, e.Model, e.Error*100)
		if r.SeenErrors != nil {
			s := r.SeenErrors[i]
			fmt.Fprintf(w, "%.4f\t%.4f\t%+.1f %%\t", s.Real, s.Model, s.Error*100)
		}
		fmt.Fprintln(w)
	}
	w.Flush() // into memory: cannot fail
}

// YAML is the fit as a profile that the mock engine loads.
func (r Report) YAML() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "# Fitted on the first %d of %d requests of %s (%s, vLLM %s), all of them simulated.\n", r.FittedOn, r.Requests, r.Run, r.Model, r.Version)
	fmt.Fprintf(&b, "# Over all requests the worst of the twelve figures is %s, %.1f %% off.\n", r.WorstFigure, r.Worst*100)
	fmt.Fprintf(&b, "# Sizes whose basis is fitted were recorded with the run.\n")
	for _, a := range r.Assumed {
		fmt.Fprintf(&b, "# Not recorded, assumed: %s.\n", a)
	}
	fmt.Fprintf(&b, "name: %s\nabout: %s on vLLM %s, fitted to a recorded run\n", r.Profile, r.Model, r.Version)
	b.WriteString(r.Coefficients.YAML())
	for _, f := range []struct {
		key   string
		value int
	}{
		{"num_blocks", r.Sizes.NumBlocks}, {"block_size", r.Sizes.BlockSize},
		{"max_num_seqs", r.Sizes.MaxNumSeqs}, {"max_num_batched_tokens", r.Sizes.MaxNumBatchedTokens},
	} {
		yamlFigure(&b, f.key, float64(f.value), r.basisOf(f.key))
	}
	return []byte(b.String())
}

// YAML is the lines of the step time in a profile.
func (c Coefficients) YAML() string {
	var b strings.Builder
	yamlFigure(&b, "step_ns", c.A, engine.BasisFitted)
	yamlFigure(&b, "prefill_token_ns", c.B, engine.BasisFitted)
	yamlFigure(&b, "decode_seq_ns", c.C, engine.BasisFitted)
	yamlFigure(&b, "decode_context_token_ns", c.D, engine.BasisFitted)
	yamlFigure(&b, "prefill_token_context_ns", c.E, engine.BasisFitted)
	yamlFigure(&b, "request_overhead_ns", float64(c.Overhead), engine.BasisFitted)
	if c.First > 0 {
		yamlFigure(&b, "first_step_extra_ns", float64(c.First), engine.BasisFitted)
	}
	return b.String()
}

func yamlFigure(b *strings.Builder, key string, value float64, basis string) {
	fmt.Fprintf(b, "%-25s {value: %s, basis: %s}\n", key+":", decimal(value), basis)
}

// basisOf a size is the run it was recorded with, or nothing when it was assumed.
func (r Report) basisOf(key string) string {
	for _, a := range r.Assumed {
		if strings.HasPrefix(a, key+" ") {
			return engine.BasisUnproven
		}
	}
	return engine.BasisFitted
}

// decimal is a number as YAML has it, without an exponent, which the readers of profiles need not know.
func decimal(v float64) string {
	s := fmt.Sprintf("%.9f", v)
	return strings.TrimRight(strings.TrimRight(s, "0"), ".")
}

// Significant rounds to four digits: more are not known, and a profile that people read has no more.
func Significant(v float64) float64 {
	if v == 0 {
		return 0
	}
	unit := math.Pow(10, math.Floor(math.Log10(math.Abs(v)))-3)
	if unit < 1 { // dividing by a whole number leaves fewer digits behind than multiplying by a fraction
		return math.Round(v*math.Round(1/unit)) / math.Round(1/unit)
	}
	return math.Round(v/unit) * unit
}

// rounded is a timing of four digits.
func rounded(t engine.Timing) engine.Timing {
	for _, v := range []*float64{&t.A, &t.B, &t.C, &t.D, &t.E} {
		*v = Significant(*v)
	}
	t.Overhead = int64(Significant(float64(t.Overhead)))
	t.FirstStep = int64(Significant(float64(t.FirstStep)))
	return t
}
