package predicate

import "math"

// unary negates. A negated condition keeps its comparison and turns the margin round.
func (ev evaluator) unary(n *unary) value {
	v := ev.node(n.x)
	if n.op == "not" {
		v.truth = v.truth.Not()
		v.margin = -v.margin
		return v
	}
	v.lo, v.hi = -v.hi, -v.lo
	return v
}

// absolute is |v|. An interval across zero begins at zero.
func absolute(v value) value {
	switch {
	case v.hi <= 0:
		v.lo, v.hi = -v.hi, -v.lo
	case v.lo < 0:
		v.lo, v.hi = 0, max(-v.lo, v.hi)
	}
	return v
}

// binary evaluates both sides always: or and and need the second side for the margin even when the first
// decides.
func (ev evaluator) binary(n *binary) value {
	l, r := ev.node(n.l), ev.node(n.r)
	switch n.level() {
	case lvOr:
		return or(l, r)
	case lvAnd:
		return and(l, r)
	}
	// An unknown operand outranks an absent one: skipping would hide that something was not seen.
	for _, st := range []state{stUnknown, stAbsent} {
		if l.st == st {
			return l
		}
		if r.st == st {
			return r
		}
	}
	if n.level() == lvCmp {
		return compare(n.op, l, r)
	}
	return arithmetic(n.op, l, r)
}

// and is false when one side is false, whatever the other; the side with the smaller margin is the one
// that decided. An absent side is nothing known.
func and(l, r value) value {
	if l.truth == r.truth && l.st == r.st {
		return closer(l, r)
	}
	for _, want := range []Truth{False, Unknown} {
		if l.truth == want {
			return l
		}
		if r.truth == want {
			return r
		}
	}
	return closer(l, r)
}

// or is true when one side is true, whatever the other.
func or(l, r value) value {
	nl, nr := negate(l), negate(r)
	return negate(and(nl, nr))
}

func negate(v value) value {
	v.truth, v.margin = v.truth.Not(), -v.margin
	return v
}

// closer is the value with the smaller margin; one without a margin decides nothing that one with has not.
func closer(l, r value) value {
	if math.IsNaN(l.margin) || r.margin < l.margin {
		return r
	}
	return l
}

// compare decides an interval comparison: true when it holds for every pair of values, false when for none,
// else unknown.
func compare(op string, l, r value) value {
	if l.text != "" || r.text != "" {
		return boolean(truthOf((l.text == r.text) == (op == "==")))
	}
	out := boolean(Unknown)
	out.cmp = &comparison{left: l, bound: (r.lo + r.hi) / 2}
	if l.unit == UnitNone {
		out.cmp.left.unit = r.unit
	}
	switch op {
	case "<", "<=":
		out.truth, out.margin = below(l, r, op == "<=")
	case ">", ">=":
		out.truth, out.margin = below(r, l, op == ">=")
	default:
		out.truth, out.margin = equal(l, r)
		if op == "!=" {
			out.truth, out.margin = out.truth.Not(), -out.margin
		}
	}
	if out.truth == Unknown {
		out.why = firstNonEmpty(l.why, r.why, "the value is not known exactly enough")
	}
	return out
}

// below decides l < r (or l <= r). The margin is the worst case when true, the best case when false.
func below(l, r value, orEqual bool) (Truth, float64) {
	worst, best := r.lo-l.hi, r.hi-l.lo
	switch {
	case worst > 0 || (orEqual && worst == 0):
		return True, worst
	case best < 0 || (!orEqual && best == 0):
		return False, best
	}
	return Unknown, (worst + best) / 2
}

// equal decides l == r. Equality has no distance to spare: its margin is 0, or minus the difference.
func equal(l, r value) (Truth, float64) {
	switch {
	case l.lo == l.hi && r.lo == r.hi && l.lo == r.lo:
		return True, 0
	case l.hi < r.lo:
		return False, l.hi - r.lo
	case r.hi < l.lo:
		return False, r.hi - l.lo
	}
	return Unknown, 0
}

// arithmetic is interval arithmetic. A divisor that may be zero gives an unknown value.
func arithmetic(op string, l, r value) value {
	out := num(0, l.unit)
	switch op {
	case "+":
		out.lo, out.hi = l.lo+r.lo, l.hi+r.hi
	case "-":
		out.lo, out.hi = l.lo-r.hi, l.hi-r.lo
	case "*":
		out.lo, out.hi = corners(l, r, func(a, b float64) float64 { return a * b })
	case "/":
		if r.lo <= 0 && r.hi >= 0 {
			return unknown("a division by zero")
		}
		out.lo, out.hi = corners(l, r, func(a, b float64) float64 { return a / b })
		if l.unit == r.unit {
			out.unit = UnitNone
			return out
		}
	}
	if out.unit == UnitNone && op != "/" {
		out.unit = r.unit
	}
	return out
}

// corners is the range of a monotone operation over two intervals.
func corners(l, r value, f func(a, b float64) float64) (lo, hi float64) {
	a, b, c, d := f(l.lo, r.lo), f(l.lo, r.hi), f(l.hi, r.lo), f(l.hi, r.hi)
	return min(a, b, c, d), max(a, b, c, d)
}

func firstNonEmpty(ss ...string) string {
	for _, s := range ss {
		if s != "" {
			return s
		}
	}
	return ""
}
