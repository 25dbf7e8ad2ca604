package bench

import (
	"cmp"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"

	"fleetdrill/replayer/bench/drive"
)

// Measures of the picture, in its own units.
const (
	plotWidth, plotHeight = 720.0, 360.0
	plotLeft, plotRight   = 64.0, 120.0
	plotTop, plotBottom   = 34.0, 44.0
)

// plotColours tell indexes apart on light and on dark ground.
var plotColours = [...]string{"#3f7fdc", "#d0632f", "#1f9a6c", "#9a5fd0", "#b8860b", "#c8487f"}

// Plot draws the lookup p99 of every trial against the rate it offered, one colour per index; trials that did
// not keep the rate up are hollow. Both axes are logarithmic. It is a whole SVG file.
func Plot(trials []*drive.Result) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" font-family="system-ui, sans-serif" font-size="12" fill="#76808f" role="img" aria-label="Lookup p99 against offered load">`+"\n", plotWidth, plotHeight)
	fmt.Fprintf(&b, `<text x="%g" y="18" font-size="14" font-weight="600">Lookup p99 against offered load; hollow = did not keep up</text>`+"\n", plotLeft)
	var names []string
	var xs, ys []float64
	for _, t := range trials {
		if t.Lookup.P99 <= 0 || t.Offered <= 0 {
			continue
		}
		if !slices.Contains(names, t.Index) {
			names = append(names, t.Index)
		}
		xs, ys = append(xs, t.Offered/1e6), append(ys, t.Lookup.P99)
	}
	if len(xs) == 0 {
		return b.String() + "</svg>\n"
	}
	x := newScale(xs, plotLeft, plotWidth-plotRight)
	y := newScale(ys, plotHeight-plotBottom, plotTop)
	axes(&b, x, y)
	for i, name := range names {
		draw(&b, name, plotColours[i%len(plotColours)], trials, x, y)
		fmt.Fprintf(&b, `<circle cx="%g" cy="%g" r="4" fill="%s"/><text x="%g" y="%g">%s</text>`+"\n", plotWidth-plotRight+18, plotTop+20*float64(i)+8,
			plotColours[i%len(plotColours)], plotWidth-plotRight+28, plotTop+20*float64(i)+12, html.EscapeString(name))
	}
	return b.String() + "</svg>\n"
}

// logScale is a logarithmic axis over whole powers of the square root of ten.
type logScale struct{ from, to, a, b float64 }

func newScale(values []float64, a, b float64) logScale {
	s := logScale{from: math.Floor(2*math.Log10(slices.Min(values))) / 2, to: math.Ceil(2*math.Log10(slices.Max(values))) / 2, a: a, b: b}
	if s.to <= s.from {
		s.to = s.from + 0.5
	}
	return s
}

func (s logScale) at(v float64) float64 {
	return math.Round(10*(s.a+(s.b-s.a)*(math.Log10(v)-s.from)/(s.to-s.from))) / 10
}

// ticks are 1, 2 and 5 times powers of ten on the axis.
func (s logScale) ticks() (out []float64) {
	for d := math.Floor(s.from); d <= s.to; d++ {
		for _, f := range []float64{1, 2, 5} {
			if v := f * math.Pow(10, d); math.Log10(v) >= s.from-1e-9 && math.Log10(v) <= s.to+1e-9 {
				out = append(out, v)
			}
		}
	}
	return out
}

func axes(b *strings.Builder, x, y logScale) {
	for _, v := range x.ticks() {
		fmt.Fprintf(b, `<path d="M%g %gV%g" stroke="#88909c" stroke-opacity=".25"/><text x="%g" y="%g" text-anchor="middle">%g</text>`+"\n", x.at(v), y.b, y.a, x.at(v), y.a+18, v)
	}
	for _, v := range y.ticks() {
		fmt.Fprintf(b, `<path d="M%g %gH%g" stroke="#88909c" stroke-opacity=".25"/><text x="%g" y="%g" text-anchor="end">%g</text>`+"\n", x.a, y.at(v), x.b, x.a-8, y.at(v)+4, v)
	}
	fmt.Fprintf(b, `<text x="%g" y="%g" text-anchor="end">offered, million block ops/s</text><text x="%g" y="%g" text-anchor="end">us</text>`+"\n", x.b, plotHeight-6, x.a-8, plotTop-8)
}

// draw places the trials of one index and a line through the medians of those at one rate.
func draw(b *strings.Builder, name, colour string, trials []*drive.Result, x, y logScale) {
	at := map[float64][]float64{}
	for _, t := range trials {
		if t.Index != name || t.Lookup.P99 <= 0 || t.Offered <= 0 {
			continue
		}
		fill := colour
		if !t.Sustained {
			fill = "none"
		}
		fmt.Fprintf(b, `<circle cx="%g" cy="%g" r="3.5" fill="%s" stroke="%s"><title>%s, %.4g M/s offered, %.4g achieved: p50 %.4g, p99 %.4g us</title></circle>`+"\n",
			x.at(t.Offered/1e6), y.at(t.Lookup.P99), fill, colour, html.EscapeString(name), t.Offered/1e6, t.Achieved/1e6, t.Lookup.P50, t.Lookup.P99)
		// Rates of one rung differ in their last digits, because a cut corpus has whole operations.
		key := math.Round(50 * math.Log10(t.Offered))
		at[key] = append(at[key], t.Lookup.P99)
	}
	type point struct{ rate, p99 float64 }
	var line []point
	for key, values := range at {
		line = append(line, point{math.Pow(10, key/50), median(values)})
	}
	slices.SortFunc(line, func(p, q point) int { return cmp.Compare(p.rate, q.rate) })
	pen := "M"
	b.WriteString(`<path d="`)
	for _, p := range line {
		fmt.Fprintf(b, "%s%g %g", pen, min(max(x.at(p.rate/1e6), x.a), x.b), y.at(p.p99))
		pen = "L"
	}
	fmt.Fprintf(b, `" fill="none" stroke="%s" stroke-opacity=".6"/>`+"\n", colour)
}
