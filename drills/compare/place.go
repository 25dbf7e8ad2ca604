package compare

// The template asks for these instead of computing: a template that does arithmetic cannot be tested.

// ScaleX is the right end of the labels left of the plot.
func (o overlay) ScaleX() float64 { return o.X0 - 14 }

// TextY is the baseline of a mark's name.
func (m markRowOf) TextY() float64 { return m.Y + 4 }

// Joined says that both runs have the mark, so that a line shows how far apart.
func (m markRowOf) Joined() bool { return m.A != nil && m.B != nil }

// TextY is the baseline of a lane's name, KeyX where the colours of the runs stand, StripH the height of
// one run's strip.
func (l laneOf) TextY() float64  { return l.Y + laneH/2 + 4 }
func (l laneOf) KeyX() float64   { return gutter - 8 }
func (l laneOf) StripH() float64 { return stripH }

// TextY is the baseline of a plot's name, TopY of its scale; Base is its zero line.
func (p plot) TextY() float64 { return p.Y + plotH/2 + 4 }
func (p plot) TopY() float64  { return p.Y + 4 }
func (p plot) Base() float64  { return p.Y + plotH }
