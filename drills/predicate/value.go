package predicate

import (
	"fmt"
	"math"
)

// value is the outcome of a node. Numbers are intervals [lo, hi]; conditions carry their truth in truth and
// the comparison that decided in cmp.
type value struct {
	st     state
	why    string
	isBool bool
	truth  Truth
	lo, hi float64
	unit   Unit
	text   string
	margin float64
	cmp    *comparison
}

// comparison is what a report shows of a condition: the left side against the middle of the right.
type comparison struct {
	left  value
	bound float64
}

func unknown(format string, args ...any) value {
	return value{why: fmt.Sprintf(format, args...), margin: math.NaN()}
}

func num(v float64, u Unit) value {
	return value{st: stKnown, lo: v, hi: v, unit: u, margin: math.NaN()}
}

func boolean(t Truth) value {
	return value{st: stKnown, isBool: true, truth: t, margin: math.NaN()}
}

// result is what the outside sees. An absent series at the top decides nothing.
func (v value) result() Result {
	nan := math.NaN()
	r := Result{Margin: v.margin, Value: nan, Low: nan, High: nan, Bound: nan, Why: v.why}
	if v.st == stKnown && v.isBool {
		r.Truth = v.truth
	}
	if v.st == stAbsent {
		r.Why = "a fault owns the source of " + v.why
	}
	if v.cmp != nil {
		l := v.cmp.left
		r.Value, r.Low, r.High, r.Bound, r.Unit = (l.lo+l.hi)/2, l.lo, l.hi, v.cmp.bound, l.unit
	}
	return r
}

func truthOf(b bool) Truth {
	if b {
		return True
	}
	return False
}
