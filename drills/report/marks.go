package report

import (
	"fmt"
	"slices"
	"strings"

	"fleetdrill/drills/record"
)

// axisSteps are the distances of ticks in seconds; beyond the last one, ten times as much each.
var axisSteps = []int64{1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200, 36000}

// axisStep is the smallest distance in ns that makes at most fifteen ticks of a span: as many labels as fit
// without touching at the width of a phone's scrolled picture.
func axisStep(span int64) int64 {
	const most = 15
	for _, seconds := range axisSteps {
		if step := seconds * 1e9; span/step <= most {
			return step
		}
	}
	step := axisSteps[len(axisSteps)-1] * 1e9
	for span/step > most { // a span is below 2^63 ns, so this ends before it overflows
		step *= 10
	}
	return step
}

// axis has a tick each axisStep.
func axis(s scale, zero int64) []axisTick {
	step := axisStep(s.to - s.from)
	var out []axisTick
	// Ticks count from the origin, not from the left edge: "+2 s" must stand for two seconds after the fault.
	first := zero + ((s.from-zero)/step)*step
	for t := first; t <= s.to; t += step {
		if t < first {
			break // past the end of time
		}
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
		// A mark outside the picture would stick to its edge and read as if it had come there.
		if !s.has(m.Hi) {
			continue
		}
		l := markLabel{X: s.x(m.Hi), Label: m.Name, Anchor: "start"}
		w := charWidth*float64(len(m.Name)) + 10
		l.TextX = l.X + 4
		// What would leave the picture on the right is set to the left of its line instead.
		left := l.X
		if l.X+w > width-margin {
			l.Anchor, l.TextX, left = "end", l.X-4, l.X-w
		}
		// First fit: marks come in time order, so the topmost row with room keeps the stack low.
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

// faultBars draws each fault with the marks that it has; one that was never injected has none.
func faultBars(rec *record.Record, s scale, zero int64, y float64) ([]faultBar, float64) {
	var out []faultBar
	for _, f := range rec.Faults {
		from, ok := mark(rec, f.ID+".inject")
		if !ok {
			continue
		}
		// From the earliest instant at which it may have acted: a bar must not hide what a fault did.
		b := faultBar{X: s.x(from.Lo), Y: y, Label: f.Kind + " " + f.Target, LabelAnchor: "end"}
		end := s.to
		for _, name := range []string{"inject", "effective", "heal", "healed"} {
			m, ok := mark(rec, f.ID+"."+name)
			if !ok {
				continue
			}
			p := point{X: s.x(m.Hi), Y: y + 6, Class: "dot", Title: f.ID + "." + name + " at " + at(m.Hi, zero)}
			if strings.HasPrefix(name, "heal") {
				p.Class = "dot ring" // what takes the fault away is hollow
			}
			b.Points = append(b.Points, p)
		}
		// Healed for sure only when the proof has come; without one the bar runs to the edge.
		if healed, ok := mark(rec, f.ID+".healed"); ok {
			end = healed.Hi
			if heal, ok := mark(rec, f.ID+".heal"); ok {
				b.HealX = s.x(heal.Lo)
				b.HealW = round(s.x(end) - b.HealX)
			}
		}
		b.W = round(max(3, s.x(end)-b.X))
		// The name stands before the bar, which begins where people look first, unless there is no room.
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
