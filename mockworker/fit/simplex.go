package fit

import (
	"math"
	"slices"
)

// The coefficients of the downhill simplex (Nelder and Mead, 1965): how far to reflect, expand, contract and
// shrink.
const (
	reflect  = 1.0
	expand   = 2.0
	contract = 0.5
	shrink   = 0.5
)

// vertex is a point and what the objective says of it.
type vertex struct {
	x []float64
	f float64
}

// minimise walks a simplex downhill from start, its other corners step away along one axis each, until the
// corners agree within tolerance or calls are spent. It needs no derivatives, which a simulation has none of.
func minimise(objective func([]float64) float64, start, step []float64, calls int, tolerance float64) vertex {
	s := simplex{objective: func(x []float64) float64 {
		calls--
		return objective(x)
	}}
	s.begin(start, step)
	for calls > 0 && s.spread() > tolerance {
		s.move()
	}
	return s.corners[0]
}

// Minimise is the search of this package for other objectives: it returns the best point found and its
// value, after about calls calls at most.
func Minimise(objective func([]float64) float64, start, step []float64, calls int, tolerance float64) ([]float64, float64) {
	v := minimise(objective, start, step, calls, tolerance)
	return v.x, v.f
}

// simplex keeps its corners sorted, the best first.
type simplex struct {
	objective func([]float64) float64
	corners   []vertex
}

func (s *simplex) at(x []float64) vertex { return vertex{x, s.objective(x)} }

func (s *simplex) begin(start, step []float64) {
	s.corners = append(s.corners[:0], s.at(slices.Clone(start)))
	for i := range start {
		x := slices.Clone(start)
		x[i] += step[i]
		s.corners = append(s.corners, s.at(x))
	}
	s.sort()
}

func (s *simplex) sort() {
	slices.SortStableFunc(s.corners, func(a, b vertex) int {
		switch {
		case a.f < b.f:
			return -1
		case a.f > b.f:
			return 1
		}
		return 0
	})
}

// spread is how far the corners' values are apart, relative to the best.
func (s *simplex) spread() float64 {
	best, worst := s.corners[0].f, s.corners[len(s.corners)-1].f
	return (worst - best) / max(math.Abs(best), math.SmallestNonzeroFloat64)
}

// move replaces the worst corner, or draws all of them towards the best.
func (s *simplex) move() {
	n := len(s.corners) - 1
	worst, second, best := s.corners[n], s.corners[n-1], s.corners[0]
	center := s.center()
	r := s.at(along(center, worst.x, -reflect))
	switch {
	case r.f < best.f:
		if e := s.at(along(center, worst.x, -expand)); e.f < r.f {
			r = e
		}
	case r.f < second.f:
	default:
		toward := contract
		if r.f < worst.f {
			toward = -contract
		}
		c := s.at(along(center, worst.x, toward))
		if c.f >= min(r.f, worst.f) {
			s.draw()
			return
		}
		r = c
	}
	s.corners[n] = r
	s.sort()
}

// center is the mean of all corners but the worst.
func (s *simplex) center() []float64 {
	n := len(s.corners) - 1
	c := make([]float64, len(s.corners[0].x))
	for _, v := range s.corners[:n] {
		for i, x := range v.x {
			c[i] += x / float64(n)
		}
	}
	return c
}

// along is the point that far from center towards to.
func along(center, to []float64, far float64) []float64 {
	x := make([]float64, len(center))
	for i := range x {
		x[i] = center[i] + float64(far*(to[i]-center[i]))
	}
	return x
}

func (s *simplex) draw() {
	best := s.corners[0].x
	for i := 1; i < len(s.corners); i++ {
		s.corners[i] = s.at(along(best, s.corners[i].x, shrink))
	}
	s.sort()
}
