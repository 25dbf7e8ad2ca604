package predicate

import (
	"slices"

	"fleetdrill/drills/record"
)

// moment evaluates x at a mark, since a mark, or without a worker.
func (ev evaluator) moment(n *moment) value {
	if n.worker != nil {
		w := ev.env.Worker(n.worker.name)
		if w == "" {
			return unknown("%s is not chosen yet", n.worker.name)
		}
		ev.except = append(slices.Clone(ev.except), w)
		return ev.node(n.x)
	}
	at, ok := ev.env.Mark(n.mark)
	if !ok {
		return unknown("mark %s has not come", n.mark.Name)
	}
	if n.op == "since" {
		ev.lo, ev.mark = at.Hi, &at
		return ev.node(n.x)
	}
	return ev.bracket(n.x, at)
}

// bracket evaluates x at every sample from the last one before a mark to the first one after it, and
// returns the hull.
func (ev evaluator) bracket(x node, at record.Interval) value {
	ev.at = &at
	if !(&Expr{x}).Sampled() {
		ev.hi = at.Hi
		return ev.node(x)
	}
	samples := ev.env.rec.Samples
	first, last := ev.env.lastSample(at.Lo), ev.env.firstSample(at.Hi)
	if first < 0 || last >= len(samples) {
		return unknown("no sample on both sides of the mark")
	}
	if gap := ev.env.rec.MaxGapNs; gap > 0 && samples[last].ReceivedNs-samples[first].SentNs > 2*gap+(at.Hi-at.Lo) {
		return unknown("the samples around the mark are %.1f s apart", seconds(samples[last].ReceivedNs-samples[first].SentNs))
	}
	var out value
	for k := first; k <= last; k++ {
		in := ev
		in.k, in.hi = k, samples[k].ReceivedNs
		v := in.node(x)
		if v.st != stKnown {
			return v
		}
		if k == first {
			out = v
		}
		out = hull(out, v)
	}
	return out
}

// hull covers two values: what holds for both of two instants around a mark holds at the mark.
func hull(a, b value) value {
	if a.text != b.text {
		return unknown("it changed between %s and %s around the mark", a.text, b.text)
	}
	a.lo, a.hi = min(a.lo, b.lo), max(a.hi, b.hi)
	if a.isBool && a.truth != b.truth {
		a.truth, a.why = Unknown, "it changed around the mark"
	}
	return a
}
