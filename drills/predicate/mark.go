package predicate

import (
	"strings"
	"time"

	"fleetdrill/drills/record"
)

// Mark is a mark expression: a named instant moved by offsets, such as `steady.end + uniform(0s..2s)`.
// Col is the byte offset of the name in the text it was parsed from.
type Mark struct {
	Name    string
	Offsets []Offset
	Col     int
}

// Offset moves a mark by a duration in [Lo, Hi]; Lo == Hi unless it is a uniform draw.
type Offset struct {
	Minus  bool
	Lo, Hi time.Duration
}

// Range is `A..B`: a window between two marks.
type Range struct {
	From, To Mark
}

// String reprints the mark expression.
func (m Mark) String() string {
	var b strings.Builder
	b.WriteString(m.Name)
	for _, o := range m.Offsets {
		if o.Minus {
			b.WriteString(" - ")
		} else {
			b.WriteString(" + ")
		}
		if o.Lo == o.Hi {
			b.WriteString(formatDuration(o.Lo))
		} else {
			b.WriteString("uniform(" + formatDuration(o.Lo) + ".." + formatDuration(o.Hi) + ")")
		}
	}
	return b.String()
}

// String reprints the range.
func (r Range) String() string { return r.From.String() + ".." + r.To.String() }

// IsZero reports whether no mark was given.
func (m Mark) IsZero() bool { return m.Name == "" }

// Random reports whether the mark has an offset that must be drawn.
func (m Mark) Random() bool {
	for _, o := range m.Offsets {
		if o.Lo != o.Hi {
			return true
		}
	}
	return false
}

// Draw replaces every uniform offset by one draw, in the order written. The runner draws from a named
// sub-stream of the run's seed, so that the same seed plans the same instants.
func (m Mark) Draw(draw func(lo, hi time.Duration) time.Duration) Mark {
	out := Mark{Name: m.Name, Col: m.Col}
	for _, o := range m.Offsets {
		if o.Lo != o.Hi {
			d := draw(o.Lo, o.Hi)
			o.Lo, o.Hi = d, d
		}
		out.Offsets = append(out.Offsets, o)
	}
	return out
}

// From is the instant of the expression when its named mark is base. An undrawn uniform offset widens
// the interval to all it may become.
func (m Mark) From(base record.Interval) record.Interval {
	for _, o := range m.Offsets {
		if o.Minus {
			base.Lo -= int64(o.Hi)
			base.Hi -= int64(o.Lo)
		} else {
			base.Lo += int64(o.Lo)
			base.Hi += int64(o.Hi)
		}
	}
	return base
}

// formatDuration prints a duration the way people write it: 2.5s, 100ms, 1m30s, never 1m0s.
func formatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
