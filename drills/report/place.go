package report

import "fmt"

// The template asks for these instead of computing: a template that does arithmetic cannot be tested.

// Alone is false inside a page; a lone picture brings its own style.
func (p picture) Alone() bool { return false }

// BandHeight is how far a fault's band reaches down.
func (p picture) BandHeight() float64 { return round(p.Y1 - p.Y0) }

// LabelX is the right end of the labels left of the plot.
func (p picture) LabelX() float64 { return p.X0 - 8 }

// LineY is where a mark's line begins: under its label.
func (l markLabel) LineY() float64 { return l.Y + 3 }

// TextY is the baseline of a fault's name.
func (f faultBar) TextY() float64 { return f.Y + 10 }

// Bottom is the base line of a lane.
func (l lane) Bottom() float64 { return l.Y + l.H }

// Top is the upper end of a request tick; a failed request's is longer.
func (p point) Top() float64 {
	if p.Class == "req-failed" {
		return p.Y - tickHeight - 4
	}
	return p.Y - tickHeight
}

// Bottom is the base line of a strip, MaxText the baseline of its scale.
func (s strip) Bottom() float64  { return s.Y + s.H - 2 }
func (s strip) MaxText() float64 { return s.MaxY + 4 }

// Drawn is false for an expectation that has no window to draw.
func (b bracket) Drawn() bool { return b.X1 > b.X0 }

// Path is a horizontal line with a foot at each end.
func (b bracket) Path() string {
	return fmt.Sprintf("M%g %gv-6M%g %gH%gM%g %gv-6", b.X0, b.Y+3, b.X0, b.Y, b.X1, b.X1, b.Y+3)
}

// BoundTop and BoundBottom are the ends of the line that marks a bound.
func (b bracket) BoundTop() float64    { return b.Y - 6 }
func (b bracket) BoundBottom() float64 { return b.Y + 6 }

// BoundTextX and BoundTextY place the bound's words. A bracket that crosses the bound would strike them
// through, so then they stand above it.
func (b bracket) BoundTextX() float64 { return round(b.BoundX + 6) }
func (b bracket) BoundTextY() float64 {
	if b.X1 > b.BoundX {
		return b.TextY
	}
	return b.Y + 4
}

// Line says that a legend entry is a tick, not a block.
func (l legend) Line() bool { return len(l.Class) > 4 && l.Class[:4] == "req-" }

// Top, MidX and TextX place a legend entry's sample, tick and words.
func (l legend) Top() float64   { return l.Y - 9 }
func (l legend) MidX() float64  { return round(l.X + 7) }
func (l legend) TextX() float64 { return round(l.X + 20) }
