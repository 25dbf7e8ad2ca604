package fit

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"fleetdrill/mockworker/engine"
)

// Change is how good the fit would be if one thing were off.
type Change struct {
	// What is off, and By as a fraction.
	What string  `json:"what"`
	By   float64 `json:"by"`
	// Figure is then the worst, Error its relative error with sign.
	Figure string  `json:"figure"`
	Error  float64 `json:"error"`
	// Refused says why the run cannot be simulated so, empty when it can.
	Refused string `json:"refused,omitempty"`
}

// offBy are how far things are off. 31 % is by how much a published study had its pool wrong.
var offBy = [...]float64{-0.31, -0.2, -0.1, 0.1, 0.2, 0.31}

// knobs are what can be off: sizes and times, in the order of the table.
var knobs = []struct {
	name   string
	size   func(*Sizes) *int
	number func(*engine.Timing) *float64
	time   func(*engine.Timing) *int64
}{
	{name: "num_blocks", size: func(s *Sizes) *int { return &s.NumBlocks }},
	{name: "max_num_seqs", size: func(s *Sizes) *int { return &s.MaxNumSeqs }},
	{name: "max_num_batched_tokens", size: func(s *Sizes) *int { return &s.MaxNumBatchedTokens }},
	{name: "a, the step", number: func(t *engine.Timing) *float64 { return &t.A }},
	{name: "b, a prefill token", number: func(t *engine.Timing) *float64 { return &t.B }},
	{name: "c, a decoding sequence", number: func(t *engine.Timing) *float64 { return &t.C }},
	{name: "d, its context", number: func(t *engine.Timing) *float64 { return &t.D }},
	{name: "e, a prefill's context", number: func(t *engine.Timing) *float64 { return &t.E }},
	{name: "request overhead", time: func(t *engine.Timing) *int64 { return &t.Overhead }},
	{name: "first step's extra", time: func(t *engine.Timing) *int64 { return &t.FirstStep }},
}

// Sensitivity changes one thing at a time and scores all requests.
func (f *Fitted) Sensitivity() []Change {
	var out []Change
	for _, k := range knobs {
		for _, by := range offBy {
			s, t := f.Sizes, f.Timing
			switch {
			case k.size != nil:
				v := k.size(&s)
				*v = int(math.Round(float64(*v) * (1 + by)))
			case k.number != nil:
				*k.number(&t) *= 1 + by
			default:
				v := k.time(&t)
				*v = int64(math.Round(float64(*v) * (1 + by)))
			}
			out = append(out, f.changed(k.name, by, s, t))
		}
	}
	return out
}

func (f *Fitted) changed(what string, by float64, s Sizes, t engine.Timing) Change {
	c := Change{What: what, By: by}
	sim, err := NewSimulator(f.Run, s)
	if err != nil {
		c.Refused = err.Error()
		return c
	}
	times, err := sim.Run(t)
	if err != nil {
		c.Refused = err.Error()
		return c
	}
	worst := Worst(Compare(f.Run.Real(len(times)), times))
	c.Figure, c.Error = worst.Figure, worst.Error
	return c
}

// sensitivityText is a row per thing and a column per share.
func (r Report) sensitivityText(b *strings.Builder) {
	if len(r.Sensitivity) == 0 {
		return
	}
	b.WriteString("\nworst figure when one thing is off\n\n")
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "off\t")
	for _, by := range offBy {
		fmt.Fprintf(w, "%+.0f %%\t", by*100)
	}
	for row := range slices.Chunk(r.Sensitivity, len(offBy)) {
		fmt.Fprintf(w, "\n%s\t", row[0].What)
		for _, c := range row {
			if c.Refused != "" {
				fmt.Fprint(w, "refused\t")
				continue
			}
			fmt.Fprintf(w, "%+.1f %% %s\t", c.Error*100, c.Figure)
		}
	}
	fmt.Fprintln(w)
	w.Flush() // into memory: cannot fail
}
