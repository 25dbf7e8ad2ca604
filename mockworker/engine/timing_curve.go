package engine

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// Curve is a step's length in the form of a published calibration: prefill by the tokens of the pass, plus
// decoding by the share of a reference pool that the decoding sequences use. Times are in nanoseconds.
//
// A lone prompt follows Points, linear between them and with the last slope beyond. Several in a pass follow
// the line BatchBase + BatchToken*tokens, which is never below what the largest of them would take alone.
// Decoding is D0 + D1*u + D2*u*u and at least a millisecond, u being context tokens over Capacity, at most 1.
type Curve struct {
	Points                []Point
	BatchBase, BatchToken float64
	D0, D1, D2            float64
	// Capacity is in tokens, of the pool that the curve was fitted with. A smaller pool keeps it: what
	// decoding costs depends on the tokens read, not on how many more there would be room for.
	Capacity float64
}

// Point is one measured prefill: so many tokens take so long.
type Point struct {
	Tokens int
	Ns     float64
}

// leastStep is the shortest step and the shortest decoding of a curve.
const leastStep = float64(time.Millisecond)

func (c *Curve) validate() error {
	if len(c.Points) < 2 {
		return errors.New("a curve's prefill needs at least two points")
	}
	for i, p := range c.Points {
		if p.Tokens < 1 || i > 0 && p.Tokens <= c.Points[i-1].Tokens {
			return fmt.Errorf("prefill point %d is at %d tokens, points must rise from at least 1", i, p.Tokens)
		}
	}
	last := c.Points[len(c.Points)-2:]
	if last[1].Ns < last[0].Ns {
		return errors.New("a curve's prefill falls at its end, so that long prompts would take no time")
	}
	values := []float64{c.BatchBase, c.BatchToken}
	for _, p := range c.Points {
		values = append(values, p.Ns)
	}
	for _, v := range values {
		if !(v >= 0) || math.IsInf(v, 0) {
			return fmt.Errorf("a curve's time is %v, must be finite and not negative", v)
		}
	}
	for _, v := range []float64{c.D0, c.D1, c.D2} {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("a curve's decoding term is %v, must be finite", v)
		}
	}
	if !(c.Capacity >= 1) || math.IsInf(c.Capacity, 0) {
		return fmt.Errorf("a curve's capacity is %v tokens, must be at least 1", c.Capacity)
	}
	return nil
}

func (c *Curve) duration(w Pass) int64 {
	return int64(math.Round(max(c.prefill(w)+c.decode(w), leastStep)))
}

// prefill is a pass's share for prompts, in ns.
func (c *Curve) prefill(w Pass) float64 {
	switch w.prefillSeqs {
	case 0:
		return 0
	case 1:
		return c.lone(w.prefillTokens)
	}
	return max(c.BatchBase+float64(c.BatchToken*float64(w.prefillTokens)), c.lone(w.prefillLargest))
}

// lone is what a prompt of n tokens takes alone, in ns. Below the first point it is that point's: a pass has
// a floor, which is what the first point of a calibration shows.
func (c *Curve) lone(n int64) float64 {
	if n <= int64(c.Points[0].Tokens) {
		return c.Points[0].Ns
	}
	i, _ := slices.BinarySearchFunc(c.Points, int(n), func(p Point, n int) int { return p.Tokens - n })
	i = min(i, len(c.Points)-1) // beyond the last one its slope goes on
	a, b := c.Points[i-1], c.Points[i]
	slope := (b.Ns - a.Ns) / float64(b.Tokens-a.Tokens)
	return a.Ns + float64(slope*float64(n-int64(a.Tokens)))
}

// decode is a pass's share for decoding, in ns.
func (c *Curve) decode(w Pass) float64 {
	if w.decodeSeqs == 0 {
		return 0
	}
	u := min(float64(w.decodeContext)/c.Capacity, 1)
	return max(c.D0+float64(c.D1*u)+float64(float64(c.D2*u)*u), leastStep)
}
