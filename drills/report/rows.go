package report

import (
	"fleetdrill/drills/judge"
)

// brackets draw, for each expectation, the stretch from its mark to the sample that decided.
func brackets(r Run, s scale, y float64) ([]bracket, float64) {
	var out []bracket
	for _, e := range r.Drill.Expectations {
		b := bracket{ID: e.ID, Value: e.ValueText, Class: string(e.Verdict), Title: e.Sentence, TextY: y + 11, Y: y + 22, Sign: sign(e.Verdict)}
		// An expectation without a window, skipped or vacuous, has its words at the left edge and no line. A
		// window of one sample still gets two units, or it could not be seen.
		if e.FromNs == 0 || e.ToNs < e.FromNs {
			b.X0, b.X1 = gutter, gutter
		} else {
			b.X0, b.X1 = s.x(e.FromNs), max(s.x(e.ToNs), s.x(e.FromNs)+2)
		}
		// A bound is an instant only for `after`; elsewhere it is a number that has no place on a time axis.
		if e.Bound != nil && e.Unit == "s" && e.FromNs != 0 && isAfter(r, e.ID) {
			b.BoundX, b.Bound = s.x(e.FromNs+int64(*e.Bound*1e9)), "bound "+judge.Number(*e.Bound, e.Unit)
		}
		// An undecided rule's value would read as its outcome.
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

// sign says a verdict without colour, for those who do not see it and for prints.
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

// legends explain the colours of lanes, ticks and, when there is one, the index strip: a row each.
func legends(index bool, y float64) ([]legend, float64) {
	rows := [][]legend{
		{{Class: "up", Label: "routable"}, {Class: "danger", Label: "engine down, still routable"}, {Class: "down", Label: "engine down, out"},
			{Class: "veto", Label: "vetoed"}, {Class: "absent", Label: "absent"}, {Class: "hole", Label: "no sample"}},
		{{Class: "req-ok", Label: "request ok"}, {Class: "req-failed", Label: "failed"}, {Class: "req-attempt", Label: "failed attempt"},
			{Class: "req-aborted", Label: "aborted"}, {Class: "req-open", Label: "open"}},
	}
	if index {
		rows = append(rows, []legend{{Class: "idx-eq", Label: "index equal to the engine"}, {Class: "idx-off", Label: "differs"},
			{Class: "idx-far", Label: "differs by 1 % or more"}})
	}
	var out []legend
	for _, row := range rows {
		x := 10.0 // in line with the lanes' names
		for _, item := range row {
			item.X, item.Y = round(x), y
			x += 34 + legendChar*float64(len(item.Label))
			out = append(out, item)
		}
		y += legendRow
	}
	return out, y
}
