package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"fleetdrill/drills/record"
)

// Measures of the picture, in its own units (one is a CSS pixel when nothing scales it).
const (
	width      = 1080.0
	gutter     = 76.0 // left of the plot: names of lanes
	margin     = 18.0 // right of the plot
	laneHeight = 20.0
	laneGap    = 8.0
	tickHeight = 6.0
	labelRow   = 15.0
	stripH     = 74.0
	rowHeight  = 34.0 // one expectation: its text and its bracket
	charWidth  = 6.3  // of 11.5 px text, to keep labels apart
	legendChar = 6.6  // the same text as people's widest default font sets it
	legendRow  = 18.0
)

// picture is the timeline, placed: the template only prints it. Everything in it is in the picture's own
// units, its origin the upper left corner.
type picture struct {
	W, H           float64
	X0, X1, Y0, Y1 float64 // the plot, without axis and expectations
	Title, Desc    string
	Axis           []axisTick
	Labels         []markLabel
	Faults         []faultBar
	Lanes          []lane
	TTFT           *strip
	Index          *indexStrip
	Rows           []bracket
	Legend         []legend
}

// axisTick is a full second, or several, of the axis.
type axisTick struct {
	X     float64
	Label string
}

// markLabel is a mark's line at X and its name at TextX on row Y.
type markLabel struct {
	X, Y, TextX float64
	Label       string
	Anchor      string
}

// faultBar is a fault from its injection to its heal, or to the edge.
type faultBar struct {
	X, W, Y float64
	Label   string
	LabelX  float64
	Title   string
	Points  []point
	// HealX and HealW are the stretch from the heal to its proof: neither broken for sure nor well. HealW
	// is 0 for a fault that did not heal.
	HealX, HealW float64
	LabelAnchor  string
}

// point is one dot or tick; Title is what a pointer over it says.
type point struct {
	X, Y  float64
	Class string
	Title string
}

// lane is one worker: its states, and under them its requests. Mid is the base line of its name.
type lane struct {
	Label string
	Y, H  float64
	Mid   float64
	Segs  []segment
	Ticks []point
}

// segment is a stretch of one state on a lane: Class is its colour, Title what a pointer over it says.
type segment struct {
	X, W  float64
	Class string
	Title string
}

// strip is the plot of times to first token: its scale reaches Max at MaxY, and HalfY is a line to read
// the middle by.
type strip struct {
	Y, H    float64
	Mid     float64
	Max     string
	MaxY    float64
	HalfY   float64
	Dots    []point
	Caption string
}

// bracket is one expectation: its words and the stretch that decided it. X0 and X1 are equal when there is
// no such stretch; the words stand at TextX, towards Anchor.
type bracket struct {
	X0, X1, Y, TextX float64
	TextY            float64
	Anchor           string
	ID, Value        string
	Class            string
	Title            string
	BoundX           float64 // 0 when the bound is no instant
	Bound            string
	Sign             string
}

// legend is one colour and its words; whether it is a block or a tick follows from its class.
type legend struct {
	X, Y  float64
	Class string
	Label string
}

// scale maps instants to x.
type scale struct {
	from, to int64
}

// x is where an instant lies; what is outside the span sticks to its edge.
func (s scale) x(ns int64) float64 {
	ns = min(max(ns, s.from), s.to)
	return round(gutter + (width-gutter-margin)*float64(ns-s.from)/float64(max(1, s.to-s.from)))
}

// has reports whether an instant lies in the picture.
func (s scale) has(ns int64) bool { return ns >= s.from && ns <= s.to }

// round keeps one decimal: a tenth of a pixel is not seen, and more digits doubled the page's size.
func round(v float64) float64 { return math.Round(v*10) / 10 }

// layOut places everything a run has to show, from top to bottom in the order in which it is read: when,
// what was done, what the gateway made of it, what clients saw, what that means.
func layOut(r Run) picture {
	s, zero := span(r.Record), origin(r.Record)
	p := picture{W: width, X0: gutter, X1: width - margin, Title: fmt.Sprintf("Timeline of %s, seed %d", r.Drill.Name, r.Drill.Seed)}
	p.Desc = describe(r)
	p.Axis = axis(s, zero)
	y := 26.0
	p.Labels, y = markLabels(r.Record, s, zero, y)
	p.Y0 = y
	p.Faults, y = faultBars(r.Record, s, zero, y+8)
	p.Lanes, y = lanes(r.Record, s, zero, y+10)
	p.TTFT, y = ttftStrip(r.Record, s, zero, y+12)
	p.Index, y = indexRows(r.Record, s, zero, y+8)
	p.Y1 = y
	p.Rows, y = brackets(r, s, y+18)
	p.Legend, y = legends(p.Index != nil, y+20)
	p.H = y
	return p
}

// span is the stretch of the run that the picture shows: from the steady window to the end of settle,
// the whole record where these marks are missing.
func span(rec *record.Record) scale {
	var s scale
	if n := len(rec.Samples); n > 0 {
		s = scale{rec.Samples[0].SentNs, rec.Samples[n-1].ReceivedNs}
	}
	// Half a second of the approach shows that the steady state was not cut out of a bad one, and a little
	// after the end shows the last sample whole.
	if m, ok := mark(rec, "steady.start"); ok {
		s.from = max(s.from, m.Lo-int64(5e8))
	}
	if m, ok := mark(rec, "settle.end"); ok {
		s.to = min(max(m.Hi+int64(3e8), s.from+1), max(s.to, m.Hi))
	}
	if s.to <= s.from {
		s.to = s.from + 1
	}
	return s
}

// Span is the stretch of a run that its pictures show, in CLOCK_MONOTONIC nanoseconds.
func Span(rec *record.Record) (from, to int64) {
	s := span(rec)
	return s.from, s.to
}

// Origin is second 0 of a run's pictures and the name of its mark: the first fault's effect, else the end
// of steady, else the first sample. Times count from the later end of the interval, as the judge's do.
func Origin(rec *record.Record) (name string, at record.Interval) {
	for _, m := range rec.Marks {
		if strings.HasSuffix(m.Name, ".effective") {
			return m.Name, m.Interval
		}
	}
	if m, ok := mark(rec, "steady.end"); ok {
		return "steady.end", m
	}
	from := span(rec).from
	return "the first sample", record.Interval{Lo: from, Hi: from}
}

// origin is Origin's later end, from which all of a run's pictures count.
func origin(rec *record.Record) int64 {
	_, at := Origin(rec)
	return at.Hi
}

// mark finds a mark by its whole name; false when it never came.
func mark(rec *record.Record, name string) (record.Interval, bool) {
	i := slices.IndexFunc(rec.Marks, func(m record.Mark) bool { return m.Name == name })
	if i < 0 {
		return record.Interval{}, false
	}
	return rec.Marks[i].Interval, true
}

// at prints an instant relative to the origin, with a sign; what is within 10 ms of it in milliseconds,
// since the proof of a fault comes that close behind the act.
func at(ns, zero int64) string {
	d := float64(ns - zero)
	switch {
	case math.Abs(d) < 5e4:
		return "0 s"
	case math.Abs(d) < 1e7:
		return fmt.Sprintf("%+.1f ms", d/1e6)
	}
	return fmt.Sprintf("%+.2f s", d/1e9)
}

// describe is the picture in words, for those who do not see it.
func describe(r Run) string {
	parts := []string{fmt.Sprintf("%d workers, %d requests.", len(r.Record.Workers), len(r.Record.Requests))}
	for _, f := range r.Record.Faults {
		parts = append(parts, fmt.Sprintf("Fault %s: %s of %s.", f.ID, f.Kind, f.Target))
	}
	for _, e := range r.Drill.Expectations {
		parts = append(parts, fmt.Sprintf("%s %s: %s", e.ID, e.Verdict, e.Sentence))
	}
	return strings.Join(parts, " ")
}
