package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"fleetdrill/drills/judge"
	"fleetdrill/drills/record"
	"fleetdrill/replayer/load"
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
	legendChar = 5.6  // the same text, set closer
)

// maxTicks bounds the request ticks and dots of a picture; above it, requests that succeeded are thinned
// evenly, failed ones never.
const maxTicks = 3000

// picture is the timeline, placed: the template only prints it.
type picture struct {
	W, H           float64
	X0, X1, Y0, Y1 float64 // the plot, without axis and expectations
	Title, Desc    string
	Axis           []axisTick
	Labels         []markLabel
	Faults         []faultBar
	Lanes          []lane
	TTFT           *strip
	Rows           []bracket
	LegendY        float64
	Legend         []legend
}

type axisTick struct {
	X     float64
	Label string
}

type markLabel struct {
	X, Y, TextX float64
	Label       string
	Anchor      string
}

type faultBar struct {
	X, W, Y     float64
	Label       string
	LabelX      float64
	Title       string
	Points      []point
	NotHealed   bool
	LabelAnchor string
}

type point struct {
	X, Y  float64
	Class string
	Title string
}

type lane struct {
	Label string
	Y, H  float64
	Mid   float64
	Segs  []segment
	Ticks []point
}

type segment struct {
	X, W  float64
	Class string
	Title string
}

type strip struct {
	Y, H    float64
	Mid     float64
	Max     string
	MaxY    float64
	HalfY   float64
	Half    string
	Dots    []point
	Caption string
}

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

type legend struct {
	X     float64
	Class string
	Label string
}

// scale maps instants to x.
type scale struct {
	from, to int64
}

func (s scale) x(ns int64) float64 {
	ns = min(max(ns, s.from), s.to)
	return round(gutter + (width-gutter-margin)*float64(ns-s.from)/float64(max(1, s.to-s.from)))
}

func (s scale) has(ns int64) bool { return ns >= s.from && ns <= s.to }

func round(v float64) float64 { return math.Round(v*10) / 10 }

// layOut places everything a run has to show.
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
	p.Y1 = y
	p.Rows, y = brackets(r, s, y+18)
	p.LegendY = y + 20
	p.Legend = legends()
	p.H = p.LegendY + 16
	return p
}

// span is the stretch of the run that the picture shows: from the steady window to the end of settle,
// the whole record where these marks are missing.
func span(rec *record.Record) scale {
	var s scale
	if n := len(rec.Samples); n > 0 {
		s = scale{rec.Samples[0].SentNs, rec.Samples[n-1].ReceivedNs}
	}
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

// origin is second 0 of the axis: the first fault's effect, else the end of steady, else the start.
func origin(rec *record.Record) int64 {
	for _, m := range rec.Marks {
		if strings.HasSuffix(m.Name, ".effective") {
			return m.Hi
		}
	}
	if m, ok := mark(rec, "steady.end"); ok {
		return m.Hi
	}
	return span(rec).from
}

func mark(rec *record.Record, name string) (record.Interval, bool) {
	i := slices.IndexFunc(rec.Marks, func(m record.Mark) bool { return m.Name == name })
	if i < 0 {
		return record.Interval{}, false
	}
	return rec.Marks[i].Interval, true
}

// at prints an instant relative to the origin, with a sign.
func at(ns, zero int64) string { return fmt.Sprintf("%+.2f s", float64(ns-zero)/1e9) }

// axis has a tick each 1, 2, 5, 10... seconds, at most fifteen.
func axis(s scale, zero int64) []axisTick {
	step := int64(1e9)
	for i := 0; (s.to-s.from)/step > 15; i++ {
		step = int64(1e9) * []int64{2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200, 36000}[min(i, 12)]
		if i >= 12 {
			break
		}
	}
	var out []axisTick
	first := zero + ((s.from-zero)/step)*step
	for t := first; t <= s.to; t += step {
		if t < s.from {
			continue
		}
		label := fmt.Sprintf("%+d s", (t-zero)/1e9)
		if t == zero {
			label = "0"
		}
		out = append(out, axisTick{s.x(t), label})
	}
	return out
}

// markLabels stacks the names of marks so that none overlaps another.
func markLabels(rec *record.Record, s scale, zero int64, y float64) ([]markLabel, float64) {
	var out []markLabel
	var ends []float64 // right end of the last label of each row
	marks := slices.Clone(rec.Marks)
	slices.SortStableFunc(marks, func(a, b record.Mark) int { return int(min(max(a.Hi-b.Hi, -1), 1)) })
	for _, m := range marks {
		if !s.has(m.Hi) {
			continue
		}
		l := markLabel{X: s.x(m.Hi), Label: m.Name, Anchor: "start"}
		w := charWidth*float64(len(m.Name)) + 10
		l.TextX = l.X + 4
		left := l.X
		if l.X+w > width-margin {
			l.Anchor, l.TextX, left = "end", l.X-4, l.X-w
		}
		row := slices.IndexFunc(ends, func(end float64) bool { return end <= left })
		if row < 0 {
			row = len(ends)
			ends = append(ends, 0)
		}
		ends[row] = left + w
		l.Y = y + labelRow*float64(row+1)
		out = append(out, l)
	}
	return out, y + labelRow*float64(len(ends)) + 6
}

func faultBars(rec *record.Record, s scale, zero int64, y float64) ([]faultBar, float64) {
	var out []faultBar
	for _, f := range rec.Faults {
		from, ok := mark(rec, f.ID+".inject")
		if !ok {
			continue
		}
		b := faultBar{X: s.x(from.Lo), Y: y, Label: f.Kind + " " + f.Target, NotHealed: true, LabelAnchor: "end"}
		end := s.to
		for _, name := range []string{"inject", "effective", "heal", "healed"} {
			m, ok := mark(rec, f.ID+"."+name)
			if !ok {
				continue
			}
			b.Points = append(b.Points, point{X: s.x(m.Hi), Y: y + 6, Class: "dot", Title: f.ID + "." + name + " at " + at(m.Hi, zero)})
			if name == "healed" {
				end, b.NotHealed = m.Hi, false
			}
		}
		b.W = round(max(3, s.x(end)-b.X))
		b.LabelX = b.X - 6
		if b.X-gutter < charWidth*float64(len(b.Label)) {
			b.LabelX, b.LabelAnchor = b.X+8, "start"
		}
		b.Title = fmt.Sprintf("%s: %s of %s", f.ID, f.Kind, f.Target)
		out = append(out, b)
		y += 20
	}
	return out, y
}

// laneState is what a sample says of a worker: the class of its segment and its words.
func laneState(rec *record.Record, k int, w string) (class, words string) {
	s := rec.Samples[k]
	v, known := s.Values["routable("+w+")"]
	down := slices.Contains(s.Absent, "engine_running("+w+")")
	veto := s.Text["veto("+w+")"]
	switch {
	case !known && slices.Contains(s.Absent, "routable("+w+")"):
		return "absent", "no routing state: a fault owns the gateway"
	case !known && len(s.Values) > 0 && hasRouting(s):
		return "absent", "not in the gateway's registry"
	case !known:
		return "hole", "not sampled"
	case v != 0 && down:
		return "danger", "still routable, engine down"
	case v != 0:
		return "up", "routable"
	case down:
		return "down", "out of routing, engine down" + reason(veto)
	}
	return "veto", "not routable" + reason(veto)
}

func reason(veto string) string {
	if veto == "" || veto == "none" {
		return ""
	}
	return " (" + veto + ")"
}

// hasRouting reports whether a sample read the routing state at all.
func hasRouting(s record.Sample) bool {
	for k := range s.Values {
		if strings.HasPrefix(k, "routable(") {
			return true
		}
	}
	return false
}

func lanes(rec *record.Record, s scale, zero int64, y float64) ([]lane, float64) {
	var out []lane
	names := slices.Clone(rec.Workers)
	homeless := slices.ContainsFunc(rec.Requests, func(q load.Record) bool {
		return q.Outcome == load.OutcomeFailed && !slices.Contains(rec.Workers, q.Worker)
	})
	if homeless {
		names = append(names, "")
	}
	keep := thinning(rec)
	for _, w := range names {
		l := lane{Label: w, Y: y, H: laneHeight, Mid: y + laneHeight/2 + 4}
		if w == "" {
			l.Label = "no worker"
		} else {
			l.Segs = segments(rec, s, zero, w)
		}
		l.Ticks = requestTicks(rec, s, zero, w, y, keep)
		out = append(out, l)
		y += laneHeight + laneGap
	}
	return out, y
}

// segments merges samples of one state. A stretch longer than max_gap without a sample is its own,
// hatched, segment.
func segments(rec *record.Record, s scale, zero int64, w string) []segment {
	var out []segment
	add := func(from, to int64, class, words string) {
		if to <= s.from || from >= s.to || to <= from {
			return
		}
		x, end := s.x(from), s.x(to)
		if n := len(out); n > 0 && out[n-1].Class == class && class != "hole" && out[n-1].X+out[n-1].W >= x-0.2 {
			out[n-1].W = round(end - out[n-1].X)
			return
		}
		out = append(out, segment{x, round(end - x), class, fmt.Sprintf("%s: %s from %s", w, words, at(from, zero))})
	}
	prev := s.from
	if n := len(rec.Samples); n > 0 {
		prev = rec.Samples[0].ReceivedNs
	}
	class, words := "hole", "not sampled"
	for k := range rec.Samples {
		t := rec.Samples[k].ReceivedNs
		if rec.MaxGapNs > 0 && t-prev > rec.MaxGapNs {
			add(prev, prev+rec.PeriodNs, class, words)
			add(prev+rec.PeriodNs, t, "hole", "not sampled")
		} else {
			add(prev, t, class, words)
		}
		class, words = laneState(rec, k, w)
		prev = t
	}
	add(prev, min(s.to, prev+rec.PeriodNs), class, words)
	return out
}

// thinning is which of the successful requests are drawn: every n-th.
func thinning(rec *record.Record) int { return 1 + len(rec.Requests)/maxTicks }

// requestTicks are the ends of a worker's requests, by outcome, under its lane.
func requestTicks(rec *record.Record, s scale, zero int64, w string, y float64, keep int) []point {
	var out []point
	for i, q := range rec.Requests {
		mine := q.Worker == w || (w == "" && !slices.Contains(rec.Workers, q.Worker) && q.Outcome == load.OutcomeFailed)
		end := q.EndNs
		if q.Outcome == load.OutcomeOpen || end == 0 {
			end = s.to
		}
		if !mine || !s.has(end) || (q.Outcome == load.OutcomeOK && i%keep != 0) {
			continue
		}
		title := fmt.Sprintf("request %s/%d %s at %s", q.Load, q.N, q.Outcome, at(end, zero))
		if q.Error != "" {
			title += ": " + clip(q.Error, 120)
		}
		out = append(out, point{X: s.x(end), Y: y + laneHeight, Class: "req-" + q.Outcome, Title: title})
	}
	// Failures last, so that they lie on top.
	slices.SortStableFunc(out, func(a, b point) int { return rankOf(a) - rankOf(b) })
	return out
}

func rankOf(p point) int {
	if p.Class == "req-ok" {
		return 0
	}
	return 1
}

func clip(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n-1]) + "…"
}

// ttftStrip plots the time to first token of every request at its scheduled instant.
func ttftStrip(rec *record.Record, s scale, zero int64, y float64) (*strip, float64) {
	top := 0.0
	for _, q := range rec.Requests {
		if q.FirstNs != 0 && s.has(q.ScheduledNs) {
			top = max(top, float64(q.FirstNs-q.ScheduledNs)/1e9)
		}
	}
	if top == 0 {
		return nil, y
	}
	top = niceTop(top)
	st := &strip{Y: y, H: stripH, Mid: y + stripH/2 + 4, Max: seconds(top), MaxY: y + 4, Half: seconds(top / 2), HalfY: y + stripH/2, Caption: "TTFT"}
	keep := thinning(rec)
	for i, q := range rec.Requests {
		if q.FirstNs == 0 || !s.has(q.ScheduledNs) || (q.Outcome == load.OutcomeOK && i%keep != 0) {
			continue
		}
		v := float64(q.FirstNs-q.ScheduledNs) / 1e9
		st.Dots = append(st.Dots, point{X: s.x(q.ScheduledNs), Y: round(y + stripH - 2 - (stripH-6)*v/top), Class: "ttft-" + q.Outcome,
			Title: fmt.Sprintf("request %s/%d on %s: first token after %.3f s", q.Load, q.N, q.Worker, v)})
	}
	return st, y + stripH + 4
}

// niceTop rounds up to 1, 2 or 5 times a power of ten.
func niceTop(v float64) float64 {
	p := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5, 10} {
		if v <= m*p {
			return m * p
		}
	}
	return 10 * p
}

func seconds(v float64) string {
	if v < 1 {
		return fmt.Sprintf("%.0f ms", v*1000)
	}
	return fmt.Sprintf("%.3g s", v)
}

// brackets draw, for each expectation, the stretch from its mark to the sample that decided.
func brackets(r Run, s scale, y float64) ([]bracket, float64) {
	var out []bracket
	for _, e := range r.Drill.Expectations {
		b := bracket{ID: e.ID, Value: e.ValueText, Class: string(e.Verdict), Title: e.Sentence, TextY: y + 11, Y: y + 22, Sign: sign(e.Verdict)}
		if e.FromNs == 0 || e.ToNs < e.FromNs {
			b.X0, b.X1 = gutter, gutter
		} else {
			b.X0, b.X1 = s.x(e.FromNs), max(s.x(e.ToNs), s.x(e.FromNs)+2)
		}
		if e.Bound != nil && e.Unit == "s" && e.FromNs != 0 && isAfter(r, e.ID) {
			b.BoundX, b.Bound = s.x(e.FromNs+int64(*e.Bound*1e9)), "bound "+judge.Number(*e.Bound, e.Unit)
		}
		if b.Value == "" || e.Verdict == judge.Unknown {
			b.Value = string(e.Verdict)
		}
		b.Anchor, b.TextX = "start", b.X0
		if b.X0+charWidth*float64(len(b.ID)+len(b.Value)+6) > width-margin {
			b.Anchor, b.TextX = "end", width-margin
		}
		out = append(out, b)
		y += rowHeight
	}
	return out, y
}

// isAfter reports whether an expectation's bound is an instant after its mark.
func isAfter(r Run, id string) bool {
	if r.Scenario == nil {
		return false
	}
	for _, x := range r.Scenario.Expect {
		if x.ID == id {
			return x.Within > 0
		}
	}
	return false
}

func sign(v judge.Verdict) string {
	switch v {
	case judge.Pass:
		return "✓"
	case judge.Fail, judge.Error:
		return "✕"
	case judge.Skipped:
		return "–"
	}
	return "?"
}

func legends() []legend {
	items := []legend{{Class: "up", Label: "routable"}, {Class: "danger", Label: "engine down, still routable"}, {Class: "down", Label: "engine down, out"},
		{Class: "veto", Label: "vetoed"}, {Class: "absent", Label: "absent"}, {Class: "hole", Label: "no sample"},
		{Class: "req-ok", Label: "request ok"}, {Class: "req-failed", Label: "failed"}, {Class: "req-aborted", Label: "aborted"}, {Class: "req-open", Label: "open"}}
	x := gutter
	for i := range items {
		items[i].X = x
		x += 36 + legendChar*float64(len(items[i].Label))
	}
	return items
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
