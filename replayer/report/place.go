package report

// The template asks for these instead of computing: a template that does arithmetic cannot be tested.

// LabelX is the right end of the labels of the vertical axis.
func (c chart) LabelX() float64 { return c.X0 - 6 }

// TickEnd is the lower end of the ticks of the horizontal axis.
func (c chart) TickEnd() float64 { return c.Y1 + 4 }

// TickY is the baseline of its labels.
func (c chart) TickY() float64 { return c.Y1 + 16 }

// NameY is the baseline of the units' names, in the row below.
func (c chart) NameY() float64 { return c.H - 4 }
