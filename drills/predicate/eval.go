package predicate

import (
	"math"
	"sort"
	"strings"

	"fleetdrill/drills/record"
)

// Truth is a three-valued outcome.
type Truth int8

// The three truths. The zero value is Unknown.
const (
	Unknown Truth = iota
	False
	True
)

// String is "true", "false" or "unknown".
func (t Truth) String() string { return [...]string{"unknown", "false", "true"}[t] }

// Not is the negation; unknown stays unknown.
func (t Truth) Not() Truth {
	switch t {
	case True:
		return False
	case False:
		return True
	}
	return Unknown
}

// Result is the outcome of an evaluation.
type Result struct {
	Truth Truth
	// Margin is the signed distance to the bound of the comparison that decided, positive when true; NaN
	// when no comparison of numbers did.
	Margin float64
	// Value (in [Low, High]) and Bound are the two sides of that comparison, in Unit; NaN without one.
	Value, Low, High, Bound float64
	Unit                    Unit
	// Why says why the truth is unknown.
	Why string
}

// Live evaluates at the newest sample; streams and counters count since the load began. `at:` and
// `steady.require` are decided by it while a run goes on.
func (x *Expr) Live(e *Env) Result {
	return x.At(e, len(e.rec.Samples)-1, e.loadStart())
}

// At evaluates at sample k; streams and counters count from the instant from up to that sample.
func (x *Expr) At(e *Env, k int, from int64) Result {
	if k < 0 || k >= len(e.rec.Samples) {
		return unknown("there is no sample yet").result()
	}
	return evaluator{env: e, k: k, lo: from, hi: e.rec.Samples[k].ReceivedNs}.node(x.root).result()
}

// After evaluates at sample k what has come of a mark: streams count from its end, counters from the last
// sample before it.
func (x *Expr) After(e *Env, k int, mark record.Interval) Result {
	if k < 0 || k >= len(e.rec.Samples) {
		return unknown("there is no sample yet").result()
	}
	return evaluator{env: e, k: k, lo: mark.Hi, hi: e.rec.Samples[k].ReceivedNs, mark: &mark}.node(x.root).result()
}

// Over evaluates on the aggregate over the window [from, to]: streams, counters and reducers cover the
// window, a bare gauge is taken at its end.
func (x *Expr) Over(e *Env, from, to int64) Result {
	k := e.lastSample(to)
	if k >= 0 && e.rec.Samples[k].SentNs < from {
		k = -1
	}
	return evaluator{env: e, k: k, lo: from, hi: to, window: true}.node(x.root).result()
}

// lastSample is the newest sample received by an instant, -1 when there is none.
func (e *Env) lastSample(by int64) int {
	return sort.Search(len(e.rec.Samples), func(i int) bool { return e.rec.Samples[i].ReceivedNs > by }) - 1
}

// firstSample is the oldest sample sent at or after an instant; len(Samples) when there is none.
func (e *Env) firstSample(from int64) int {
	return sort.Search(len(e.rec.Samples), func(i int) bool { return e.rec.Samples[i].SentNs >= from })
}

type state int8

const (
	stUnknown state = iota
	stKnown
	stAbsent
)

// evaluator is the place in the record at which a predicate is evaluated. It is passed by value: a lift, a
// mark or an exception evaluates its operand in a changed copy.
type evaluator struct {
	env *Env
	// k is the sample that gauges are read from, -1 without one; [lo, hi] bounds counters and streams.
	k      int
	lo, hi int64
	// window makes mean, max and min of a gauge range over the samples of [lo, hi].
	window bool
	// holder is the worker or rank that a surrounding lift has reached; except the ones left out.
	holder string
	except []string
	// at is set inside `x at M`; mark is the mark from which an `after` counts.
	at, mark *record.Interval
}

func (ev evaluator) node(n node) value {
	switch n := n.(type) {
	case *number:
		return num(n.value, n.unit)
	case *path:
		return ev.path(n)
	case *call:
		return ev.call(n)
	case *unary:
		return ev.unary(n)
	case *binary:
		return ev.binary(n)
	case *moment:
		return ev.moment(n)
	}
	return unknown("not evaluable")
}

// path evaluates a bare name; inside a lift it means the holder that the lift has reached.
func (ev evaluator) path(n *path) value {
	if n.name == "fair_share" {
		return ev.fairShare()
	}
	s, ok := catalogue[n.name]
	if !ok {
		return value{st: stKnown, text: n.name, margin: math.NaN()} // a word, as in veto(w1) == dead
	}
	if s.Per == PerFleet {
		return ev.series(s, "")
	}
	if ev.holder == "" {
		return unknown("%s needs a worker", n.name)
	}
	return ev.series(s, holderFor(s, ev.holder))
}

// call evaluates name(...). The order matters: a series named like a function does not exist, a stream is
// reduced, a bare per-worker series is lifted, and what is left ranges over time.
func (ev evaluator) call(n *call) value {
	name, steady := strings.CutPrefix(n.name, steadyPrefix)
	if steady {
		in, ok := ev.steady(n)
		if !ok {
			return unknown("the steady window has not ended")
		}
		ev = in
	}
	if _, ok := catalogue[n.name]; ok && n.worker != nil && n.of == "" {
		w := ev.env.Worker(n.worker.name)
		if w == "" {
			return unknown("%s is not chosen yet", n.worker.name)
		}
		return ev.series(catalogue[n.name], w)
	}
	switch {
	case name == "abs":
		return absolute(ev.node(n.arg))
	case n.of != "" || isStream(n):
		return ev.reduce(name, n)
	case hasBare(n.arg) && ev.window && name == "mean":
		return ev.overTime(name, func(ev evaluator) value { return ev.lift(name, n.arg) })
	case hasBare(n.arg):
		return ev.lift(name, n.arg)
	}
	return ev.overTime(name, func(ev evaluator) value { return ev.node(n.arg) })
}

// steady moves an evaluation into the steady window. A stream is taken from the start of the load: a window
// of 3 s has too few requests for a p99, and what precedes the window is the same load on the same fleet.
func (ev evaluator) steady(n *call) (evaluator, bool) {
	from, ok1 := ev.env.marks["steady.start"]
	to, ok2 := ev.env.marks["steady.end"]
	if !ok1 || !ok2 {
		return ev, false
	}
	ev.lo, ev.hi, ev.window, ev.k, ev.mark = from.Hi, to.Lo, true, ev.env.lastSample(to.Lo), nil
	if n.of != "" || isStream(n) {
		ev.lo = ev.env.loadStart()
	}
	return ev, true
}
