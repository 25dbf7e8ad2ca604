package report

import (
	"fmt"
	"math"
	"strings"
)

// Measures of a picture, in its own units (one is a CSS pixel when nothing scales it).
const (
	width, height = 540.0, 210.0
	left, right   = 52.0, 10.0
	top, bottom   = 10.0, 34.0
)

// chart is one picture, placed.
type chart struct {
	Title, Desc  string
	W, H         float64
	X0, X1       float64
	Y0, Y1       float64
	XTicks       []tick
	YTicks       []tick
	XName, YName string
	Lines        []placedLine
}

type tick struct {
	At    float64
	Label string
}

// placedLine is a line as SVG path data.
type placedLine struct {
	Class, Label, Path string
}

// line is a series to draw; Class chooses its colour.
type line struct {
	class, label string
	points       []xy
}

// axis maps values to positions.
type axis struct {
	from, to float64 // values, as logarithms when log is set
	a, b     float64 // positions
	log      bool
}

func (x axis) at(v float64) float64 {
	if x.log {
		v = math.Log10(v)
	}
	if x.to <= x.from {
		return x.a
	}
	return round(x.a + (x.b-x.a)*(v-x.from)/(x.to-x.from))
}

func round(v float64) float64 { return math.Round(v*10) / 10 }

// plot places lines in a picture. y begins at 0, or at yFrom; log makes x logarithmic.
func plot(title, xName, yName string, log bool, yFrom float64, lines []line) chart {
	c := chart{Title: title, W: width, H: height, X0: left, X1: width - right, Y0: top, Y1: height - bottom, XName: xName, YName: yName}
	x, y := span(lines, log, yFrom)
	x.a, x.b, y.a, y.b = c.X0, c.X1, c.Y1, c.Y0
	for _, l := range lines {
		c.Lines = append(c.Lines, placedLine{l.class, l.label, path(l.points, x, y)})
	}
	c.XTicks, c.YTicks = x.ticks(), y.ticks()
	c.Desc = describe(title, lines)
	return c
}

// span is the axes that hold every point.
func span(lines []line, log bool, yFrom float64) (x, y axis) {
	x = axis{from: math.Inf(1), to: math.Inf(-1), log: log}
	y = axis{from: yFrom, to: yFrom}
	for _, l := range lines {
		for _, p := range l.points {
			if math.IsNaN(p.y) || log && p.x <= 0 {
				continue
			}
			v := p.x
			if log {
				v = math.Log10(v)
			}
			x.from, x.to, y.to = min(x.from, v), max(x.to, v), max(y.to, p.y)
		}
	}
	if math.IsInf(x.from, 0) {
		x.from, x.to = 0, 1
	}
	if !log {
		x.from = min(x.from, 0)
	}
	if y.to == y.from {
		y.to = y.from + 1
	}
	y.to = y.from + (y.to-y.from)*1.05
	return x, y
}

// path is the SVG path through the points; it breaks where there is no value.
func path(points []xy, x, y axis) string {
	var b strings.Builder
	pen := "M"
	for _, p := range points {
		if math.IsNaN(p.y) || x.log && p.x <= 0 {
			pen = "M"
			continue
		}
		fmt.Fprintf(&b, "%s%g %g", pen, x.at(p.x), y.at(p.y))
		pen = "L"
	}
	return b.String()
}

// ticks are at most eight round values of the axis.
func (x axis) ticks() (out []tick) {
	if x.log {
		return x.logTicks()
	}
	const most = 6
	step := math.Pow(10, math.Floor(math.Log10((x.to-x.from)/most)))
	for _, m := range []float64{1, 2, 5, 10} {
		if (x.to-x.from)/(step*m) <= most {
			step *= m
			break
		}
	}
	for k := math.Ceil(x.from / step); k*step <= x.to*(1+1e-9); k++ {
		out = append(out, tick{x.at(k * step), label(k * step)})
	}
	return out
}

// logTicks are at 1, 2 and 5 times powers of ten, at the powers alone when those are several, at some of them
// when they are many.
func (x axis) logTicks() (out []tick) {
	factors := []float64{1, 2, 5}
	if x.to-x.from > 2.5 {
		factors = factors[:1]
	}
	every := math.Ceil((x.to - x.from) / 8)
	for d := math.Floor(x.from); d <= x.to; d += max(every, 1) {
		for _, f := range factors {
			v := f * math.Pow(10, d)
			if l := math.Log10(v); l >= x.from-1e-9 && l <= x.to+1e-9 {
				out = append(out, tick{x.at(v), label(v)})
			}
		}
	}
	return out
}

// label writes a tick's value with the digits that it has.
func label(v float64) string {
	if v >= 10_000 {
		return fmt.Sprintf("%.6gk", v/1000)
	}
	return fmt.Sprintf("%.6g", v)
}

// describe is a picture in words, for those who do not see it.
func describe(title string, lines []line) string {
	var names []string
	for _, l := range lines {
		names = append(names, l.label)
	}
	return title + ": " + strings.Join(names, ", ")
}
