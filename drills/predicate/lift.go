package predicate

import (
	"slices"
	"strings"
)

// lift evaluates an operand once per holder and combines the outcomes. Absent ones are skipped.
func (ev evaluator) lift(name string, arg node) value {
	var vs []value
	for _, h := range ev.env.holders(widest(arg)) {
		worker, _, _ := strings.Cut(h, "/")
		if slices.Contains(ev.except, h) || slices.Contains(ev.except, worker) {
			continue
		}
		ev.holder = h
		if v := ev.node(arg); v.st != stAbsent {
			vs = append(vs, v)
		}
	}
	switch name {
	case "all", "any":
		return foldTruth(vs, name == "all")
	case "count":
		return countTrue(vs)
	}
	return foldNumbers(name, vs)
}

// widest is a series of the operand that decides what the lift ranges over: ranks when one exists per rank.
func widest(arg node) Series {
	out := Series{Per: PerWorker}
	walk(arg, func(n node) {
		if p, ok := n.(*path); ok && catalogue[p.name].Per == PerRank {
			out = catalogue[p.name]
		}
	})
	return out
}

// foldTruth is all (every) or any of the values: one decisive value decides, else an unknown one keeps the
// whole unknown. Of nothing at all nothing is known.
func foldTruth(vs []value, every bool) value {
	if len(vs) == 0 {
		return unknown("no worker is left to look at")
	}
	out := vs[0]
	for _, v := range vs[1:] {
		if every {
			out = and(out, v)
		} else {
			out = or(out, v)
		}
	}
	return out
}

// countTrue is an interval: every unknown value may count or not.
func countTrue(vs []value) value {
	out := num(0, UnitNone)
	for _, v := range vs {
		switch {
		case v.st == stUnknown || v.truth == Unknown:
			out.hi++
			out.why = v.why
		case v.truth == True:
			out.lo++
			out.hi++
		}
	}
	return out
}

// foldNumbers combines intervals end by end: the smallest possible sum is the sum of the smallest.
func foldNumbers(name string, vs []value) value {
	for _, v := range vs {
		if v.st == stUnknown {
			return v
		}
	}
	if len(vs) == 0 {
		if name == "sum" {
			return num(0, UnitNone)
		}
		return unknown("no worker is left to look at")
	}
	lo, hi := vs[0], vs[0] // the smallest and the largest
	sum := value{}
	for _, v := range vs {
		lo.lo, lo.hi = min(lo.lo, v.lo), min(lo.hi, v.hi)
		hi.lo, hi.hi = max(hi.lo, v.lo), max(hi.hi, v.hi)
		sum.lo, sum.hi = sum.lo+v.lo, sum.hi+v.hi
	}
	out := vs[0]
	switch name {
	case "sum":
		out.lo, out.hi = sum.lo, sum.hi
	case "mean":
		n := float64(len(vs))
		out.lo, out.hi = sum.lo/n, sum.hi/n
	case "max":
		out.lo, out.hi = hi.lo, hi.hi
	case "min":
		out.lo, out.hi = lo.lo, lo.hi
	case "spread":
		out.lo, out.hi = max(0, hi.lo-lo.hi), hi.hi-lo.lo
	}
	return out
}
