package compare

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"fleetdrill/drills/report"
)

// Measures of the overlay, in its own units (one is a CSS pixel when nothing scales it).
const (
	width      = 1080.0
	gutter     = 168.0 // left of the plot: names of marks and lanes, which are longer than worker ids
	margin     = 18.0
	markRow    = 17.0
	stripH     = 9.0 // one run's strip of a lane
	laneH      = 2*stripH + 3
	laneGap    = 8.0
	plotH      = 46.0
	plotGap    = 16.0
	sectionGap = 18.0
)

// overlay is both runs on one axis, placed: the template only prints it.
type overlay struct {
	W, H, X0, X1, Top, Bottom float64
	Title, Desc               string
	Axis                      []tick
	ZeroX                     float64
	Marks                     []markRowOf
	Lanes                     []laneOf
	Plots                     []plot
}

// tick is a full second, or several, of the axis.
type tick struct {
	X     float64
	Label string
}

// markRowOf is one mark: a dot per run, joined where both have it.
type markRowOf struct {
	Name   string
	Y      float64
	A, B   *float64
	TitleA string
	TitleB string
}

// laneOf is one worker, or the target of one fault: A's strip over B's.
type laneOf struct {
	Label  string
	Y, YB  float64
	SegsA  []seg
	SegsB  []seg
	Target bool
}

// seg is a stretch of one state; Title is what a pointer over it says.
type seg struct {
	X, W         float64
	Class, Title string
}

// plot is one figure over time: a step line per run.
type plot struct {
	Label, Top string
	Y          float64
	A, B       string
}

// axis maps seconds from the common origin to x.
type axis struct{ from, to float64 }

// x is where a second lies; what is outside the axis sticks to its edge.
func (a axis) x(s float64) float64 {
	s = min(max(s, a.from), a.to)
	return round(gutter + (width-gutter-margin)*(s-a.from)/(a.to-a.from))
}

// has reports whether a second lies on the axis.
func (a axis) has(s float64) bool { return s >= a.from && s <= a.to }

// round keeps one decimal: a tenth of a pixel is not seen, and more digits doubled the page's size.
func round(v float64) float64 { return math.Round(v*10) / 10 }

// layOut places everything, top to bottom: marks, lanes, plots. Marks stand apart from the lanes, a row
// each, because two runs' lines drawn through the lanes could not be told from each other.
func (d Diff) layOut() overlay {
	ax := d.axis()
	o := overlay{W: width, X0: gutter, X1: width - margin, Top: 24, Axis: ax.ticks(), ZeroX: ax.x(0),
		Title: "Two runs over each other", Desc: "Run A is the upper strip and the solid line, run B the lower strip and the dashed line. " + strings.Join(d.words(), " ")}
	y := o.Top + 10 // clear of the axis' labels
	for _, m := range d.Marks {
		row, ok := d.markRow(m, ax, y)
		if !ok {
			continue
		}
		o.Marks = append(o.Marks, row)
		y += markRow
	}
	y += sectionGap
	o.Lanes, y = d.lanes(ax, y)
	o.Plots, y = d.plots(ax, y+sectionGap)
	o.Bottom = y
	o.H = y + 8
	return o
}

// axis spans both runs, so that neither is cut.
func (d Diff) axis() axis {
	ax := axis{math.Inf(1), math.Inf(-1)}
	for _, s := range []side{d.a, d.b} {
		from, to := report.Span(s.Record)
		ax.from, ax.to = min(ax.from, s.seconds(from)), max(ax.to, s.seconds(to))
	}
	// Two runs without a sample, or a span that is no number, still get an axis to draw nothing on.
	if !(ax.to > ax.from) {
		ax.to = ax.from + 1
	}
	return ax
}

// maxTicks bounds the labels of the axis; more would touch.
const maxTicks = 15

// ticks are full steps of the finest scale whose labels do not touch.
func (a axis) ticks() []tick {
	step := 1.0
	for _, next := range []float64{1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 36000} {
		step = next
		if (a.to-a.from)/step <= maxTicks {
			break
		}
	}
	// From a whole step, so that the origin has a tick whenever the axis contains it.
	var out []tick
	for s := math.Ceil(a.from/step) * step; s <= a.to && len(out) < 2*maxTicks; s += step {
		label := fmt.Sprintf("%+g s", s)
		if s == 0 {
			label = "0"
		}
		out = append(out, tick{a.x(s), label})
	}
	return out
}

// markRow places one mark; false when neither run has it inside the axis.
func (d Diff) markRow(m Instants, ax axis, y float64) (markRowOf, bool) {
	row := markRowOf{Name: m.Name, Y: y}
	place := func(at *[2]float64, run string) (*float64, string) {
		if at == nil || !ax.has(at[1]) {
			return nil, ""
		}
		x := ax.x(at[1])
		return &x, fmt.Sprintf("%s in %s: %+.2f s", m.Name, run, at[1])
	}
	row.A, row.TitleA = place(m.A, "A")
	row.B, row.TitleB = place(m.B, "B")
	return row, row.A != nil || row.B != nil
}

// lanes begin with the targets of the faults, matched by fault and not by worker: another seed breaks
// another worker, and what people compare is what became of it.
func (d Diff) lanes(ax axis, y float64) ([]laneOf, float64) {
	type pair struct{ label, a, b string }
	var rows []pair
	shown := map[string]bool{} // workers whose two strips stand in a target's lane together
	for _, f := range faults(d.a, d.b) {
		a, b := d.a.Record.Targets[f], d.b.Record.Targets[f]
		label := f + ": " + a
		// Two victims are both named, A's first, as its strip is.
		if a != b {
			label = fmt.Sprintf("%s: %s / %s", f, orNone(a), orNone(b))
		}
		rows = append(rows, pair{label, a, b})
		shown[a] = shown[a] || a == b
	}
	targets := len(rows)
	for _, w := range union(d.a.Record.Workers, d.b.Record.Workers) {
		// A worker that was both runs' target has been drawn; one that was only one run's is drawn again,
		// since its other strip is an ordinary worker's.
		if !shown[w] {
			rows = append(rows, pair{w, w, w})
		}
	}
	var out []laneOf
	for i, r := range rows {
		out = append(out, laneOf{Label: r.label, Y: y, YB: y + stripH + 3, Target: i < targets,
			SegsA: d.a.segments(ax, r.a, "A"), SegsB: d.b.segments(ax, r.b, "B")})
		y += laneH + laneGap
	}
	return out, y
}

// orNone names the target of a fault that one of the runs did not have.
func orNone(w string) string {
	if w == "" {
		return none
	}
	return w
}

// faults are the ids of both runs' faults, A's first.
func faults(a, b side) []string {
	var out []string
	for _, s := range []side{a, b} {
		for _, f := range s.Record.Faults {
			if !slices.Contains(out, f.ID) {
				out = append(out, f.ID)
			}
		}
	}
	return out
}

// union keeps a's order and appends what only b has: fleets of two sizes share their first workers.
func union(a, b []string) []string {
	out := slices.Clone(a)
	for _, s := range b {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// segments merges the samples of one state; a worker that the run did not have has none.
func (s side) segments(ax axis, w, run string) []seg {
	if !slices.Contains(s.Record.Workers, w) {
		return nil
	}
	var out []seg
	for k, sample := range s.Record.Samples {
		from, to := s.seconds(sample.ReceivedNs), s.until(k)
		if to < ax.from || from > ax.to {
			continue
		}
		class, words := report.State(s.Record, k, w)
		// A hole never grows: each is a stretch of its own that a reader should be able to count.
		x, end := ax.x(from), ax.x(to)
		if n := len(out); n > 0 && out[n-1].Class == class && class != "hole" && out[n-1].X+out[n-1].W >= x-0.2 {
			out[n-1].W = round(end - out[n-1].X)
			continue
		}
		out = append(out, seg{x, round(end - x), class, fmt.Sprintf("%s, %s: %s from %+.2f s", run, w, words, from)})
	}
	return out
}

// until is how far a sample's word reaches: to the next one, but no further than a period when that is
// missing, so that a hole shows as one.
func (s side) until(k int) float64 {
	samples := s.Record.Samples
	if k+1 < len(samples) && samples[k+1].ReceivedNs-samples[k].ReceivedNs <= s.Record.MaxGapNs {
		return s.seconds(samples[k+1].ReceivedNs)
	}
	return s.seconds(samples[k].ReceivedNs + s.Record.PeriodNs)
}

// words are the verdicts of both runs, for those who do not see the picture.
func (d Diff) words() []string {
	var out []string
	for _, p := range d.Expectations {
		out = append(out, fmt.Sprintf("%s: A %s, B %s, %s.", p.ID, short(p.A), short(p.B), p.Says()))
	}
	return out
}
