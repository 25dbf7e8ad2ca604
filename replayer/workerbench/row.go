package workerbench

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"text/tabwriter"
)

// Row is one measured figure.
type Row struct {
	Figure string `json:"figure"`
	Unit   string `json:"unit"`
	// Value is the median of Runs measurements, Low and High their range.
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	Runs  int     `json:"runs"`
	// Bar and Goal are what a release must and should reach, nil where none is set. More is better where
	// MoreIsBetter, otherwise less is.
	Bar          *float64 `json:"bar,omitempty"`
	Goal         *float64 `json:"goal,omitempty"`
	MoreIsBetter bool     `json:"more_is_better,omitempty"`
	// Verdict is goal, bar or missed; empty without a bar.
	Verdict string `json:"verdict,omitempty"`
	// Peer is the peer's value in the same run, Ratio subject over peer; nil without one.
	Peer  *float64 `json:"peer,omitempty"`
	Ratio *float64 `json:"ratio,omitempty"`
}

// The values of Row.Verdict.
const (
	VerdictGoal   = "goal"
	VerdictBar    = "bar"
	VerdictMissed = "missed"
)

// figure describes one row before it is measured.
type figure struct {
	name, unit string
	bar, goal  float64 // NaN where none is set
	more       bool
}

// none is a bar that is not set.
var none = math.NaN()

// row folds the measurements of a figure. Without any there is no row.
func (f figure) row(values []float64) (Row, bool) {
	if len(values) == 0 {
		return Row{}, false
	}
	s := slices.Sorted(slices.Values(values))
	r := Row{
		Figure: f.name, Unit: f.unit, Value: median(s), Low: s[0], High: s[len(s)-1], Runs: len(s),
		MoreIsBetter: f.more, Bar: some(f.bar), Goal: some(f.goal),
	}
	if r.Bar != nil {
		r.Verdict = f.verdict(r.Value)
	}
	return r, true
}

func some(v float64) *float64 {
	if math.IsNaN(v) {
		return nil
	}
	return &v
}

// median of sorted values, the mean of the middle two of an even number.
func median(sorted []float64) float64 {
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

func (f figure) verdict(v float64) string {
	reached := func(bound float64) bool {
		if f.more {
			return v >= bound
		}
		return v <= bound
	}
	switch {
	case !math.IsNaN(f.goal) && reached(f.goal):
		return VerdictGoal
	case reached(f.bar):
		return VerdictBar
	}
	return VerdictMissed
}

// beside adds the peer's values to the subject's rows, by figure.
func beside(subject, peer []Row) {
	for i := range subject {
		at := slices.IndexFunc(peer, func(p Row) bool { return p.Figure == subject[i].Figure })
		if at < 0 {
			continue
		}
		v := peer[at].Value
		subject[i].Peer = &v
		if v != 0 {
			ratio := subject[i].Value / v
			subject[i].Ratio = &ratio
		}
	}
}

// Write prints a result as a table.
func (r Result) Write(w io.Writer) error {
	fmt.Fprintf(w, "%s, %d CPUs, load average %.2f before and %.2f after\n\n", r.Subject, r.CPUs, r.LoadBefore, r.LoadAfter)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "figure\tvalue\trange\truns\tbar\tgoal\t\t")
	if r.Peer != "" {
		fmt.Fprint(t, "peer\tratio\t")
	}
	fmt.Fprintln(t)
	for _, row := range r.Rows {
		fmt.Fprintf(t, "%s, %s\t%s\t%s-%s\t%d\t%s\t%s\t%s\t", row.Figure, row.Unit, short(row.Value), short(row.Low), short(row.High),
			row.Runs, optional(row.Bar), optional(row.Goal), row.Verdict)
		if r.Peer != "" {
			fmt.Fprintf(t, "%s\t%s\t", optional(row.Peer), optional(row.Ratio))
		}
		fmt.Fprintln(t)
	}
	for _, s := range r.Skipped {
		fmt.Fprintf(t, "not measured: %s\n", s)
	}
	return t.Flush()
}

func optional(v *float64) string {
	if v == nil {
		return "-"
	}
	return short(*v)
}

// short is a figure with three digits that say something.
func short(v float64) string {
	switch a := math.Abs(v); {
	case a >= 100 || v == math.Trunc(v):
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}
