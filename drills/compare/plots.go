package compare

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"fleetdrill/drills/record"
	"fleetdrill/replayer/load"
)

// dot is a value that holds from a second on until the next one; NaN says that nothing is known from there.
type dot struct{ at, v float64 }

// bucket is the width, in seconds, over which times to first token are summed up: at the matrix's 24
// requests a second it holds twelve, enough for a median and short enough to show a stall.
const bucket = 0.5

// plots are the figures worth seeing over time. One that neither run sampled is left out.
func (d Diff) plots(ax axis, y float64) ([]plot, float64) {
	var out []plot
	for _, p := range []struct {
		label string
		of    func(side) []dot
		text  func(float64) string
		least float64 // top of the scale of a figure that stayed at zero
	}{
		{"routable workers", side.routable, plain, 1},
		{"requests in flight", side.inflight, plain, 1},
		{"TTFT, median", side.ttft, millis, 0.001},
		{"failed so far", side.failed, plain, 1},
		{"index count error", side.indexError, percent, 0.01},
	} {
		// Both runs share a scale, or their lines could not be compared by eye.
		a, b := p.of(d.a), p.of(d.b)
		top := max(highest(a), highest(b))
		if math.IsInf(top, -1) {
			continue
		}
		// A figure that stayed at zero is drawn all the same: that nothing failed is worth seeing.
		top = niceTop(max(top, p.least))
		out = append(out, plot{Label: p.label, Top: p.text(top), Y: y, A: path(ax, a, y, top), B: path(ax, b, y, top)})
		y += plotH + plotGap
	}
	return out, y
}

// highest is the largest known value, minus infinity when nothing is.
func highest(ds []dot) float64 {
	top := math.Inf(-1)
	for _, d := range ds {
		if !math.IsNaN(d.v) {
			top = max(top, d.v)
		}
	}
	return top
}

// niceTop rounds a positive number up to 1, 2 or 5 times a power of ten.
func niceTop(v float64) float64 {
	p := math.Pow(10, math.Floor(math.Log10(v)))
	// Steps that people halve in their heads: the middle of a scale is then a number too.
	for _, m := range []float64{1, 2, 5} {
		if v <= m*p {
			return m * p
		}
	}
	return 10 * p
}

// plain, millis and percent word the end of a scale.
func plain(v float64) string   { return fmt.Sprintf("%g", v) }
func millis(v float64) string  { return fmt.Sprintf("%g ms", v*1e3) }
func percent(v float64) string { return fmt.Sprintf("%g %%", v*100) }

// path draws a step line: a value holds until the next is known, never on a slope between the two. What
// lies beyond the axis is left out.
func path(ax axis, ds []dot, y, top float64) string {
	var b strings.Builder
	level, last := math.NaN(), 0.0 // of the stroke being drawn; NaN between strokes
	lift := func() {
		if !math.IsNaN(level) {
			fmt.Fprintf(&b, "H%g", last)
		}
		level = math.NaN()
	}
	for _, d := range ds {
		if !ax.has(d.at) {
			continue
		}
		x, at := ax.x(d.at), round(y+plotH*(1-d.v/top))
		switch {
		case math.IsNaN(d.v):
			last = x // the last known value held until here
			lift()
		case math.IsNaN(level):
			fmt.Fprintf(&b, "M%g %g", x, at)
			level = at
		case at != level:
			fmt.Fprintf(&b, "H%gV%g", x, at)
			level = at
		}
		last = x
	}
	lift()
	return b.String()
}

// sampled makes a line of what each sample says; of gives NaN for one that says nothing.
func (s side) sampled(of func(record.Sample) float64) []dot {
	var out []dot
	for _, x := range s.Record.Samples {
		out = append(out, dot{s.seconds(x.ReceivedNs), of(x)})
	}
	return out
}

// sum adds a series over all workers; NaN when none of them was sampled.
func (s side) sum(series string) []dot {
	return s.sampled(func(x record.Sample) float64 {
		total, known := 0.0, false
		for _, w := range s.Record.Workers {
			v, ok := x.Values[series+"("+w+")"]
			total, known = total+v, known || ok
		}
		if !known {
			return math.NaN()
		}
		return total
	})
}

// routable and inflight are the fleet's capacity and its load, as the gateway saw them.
func (s side) routable() []dot { return s.sum("routable") }
func (s side) inflight() []dot { return s.sum("inflight") }

// indexError is the worst count_error of any rank. Where no rank could be compared at one sequence number
// the last word stands: between two comparisons nothing is known, not even that something changed.
func (s side) indexError() []dot {
	last := math.NaN()
	return s.sampled(func(x record.Sample) float64 {
		worst := math.NaN()
		for k, v := range x.Values {
			// Written so that a first value beats NaN, which compares false with everything.
			if strings.HasPrefix(k, "count_error(") && !(v <= worst) {
				worst = v
			}
		}
		if !math.IsNaN(worst) {
			last = worst
		}
		return last
	})
}

// failed counts the requests that have failed.
func (s side) failed() []dot {
	var ends []int64
	for _, r := range s.Record.Requests {
		if r.Outcome == load.OutcomeFailed && r.EndNs != 0 {
			ends = append(ends, r.EndNs)
		}
	}
	slices.Sort(ends)
	n := 0 // of ends so far; samples come in time order, so one walk suffices
	return s.sampled(func(x record.Sample) float64 {
		for n < len(ends) && ends[n] <= x.ReceivedNs {
			n++
		}
		return float64(n)
	})
}

// ttft is the median time to first token of the requests due in each bucket; a bucket without any breaks
// the line.
func (s side) ttft() []dot {
	buckets := map[int][]float64{}
	first, last := math.MaxInt, math.MinInt
	for _, r := range s.Record.Requests {
		if r.FirstNs == 0 {
			continue
		}
		i := int(math.Floor(s.seconds(r.ScheduledNs) / bucket))
		buckets[i] = append(buckets[i], float64(r.FirstNs-r.ScheduledNs)/1e9)
		first, last = min(first, i), max(last, i)
	}
	var out []dot
	for i := first; i <= last; i++ {
		v := math.NaN()
		if vs := buckets[i]; len(vs) > 0 {
			slices.Sort(vs)
			v = vs[(len(vs)-1)/2]
		}
		out = append(out, dot{float64(i) * bucket, v})
	}
	return out
}
