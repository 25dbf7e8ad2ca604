package predicate

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
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
	// at is set inside `x at M`.
	at *record.Interval
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

// holderFor cuts a rank to its worker for a series that exists per worker.
func holderFor(s Series, holder string) string {
	if s.Per == PerWorker {
		holder, _, _ = strings.Cut(holder, "/")
	}
	return holder
}

// fairShare is 1 / routable workers.
func (ev evaluator) fairShare() value {
	s, n := catalogue["routable"], 0.0
	for _, w := range ev.env.rec.Workers {
		v := ev.series(s, w)
		if v.st == stUnknown {
			return v
		}
		if v.truth == True {
			n++
		}
	}
	if n == 0 {
		return unknown("no worker is routable, so there is no fair share")
	}
	return num(1/n, UnitNone)
}

// series reads a gauge or counter of a holder ("" for the fleet).
func (ev evaluator) series(s Series, holder string) value {
	if s.derived {
		return ev.derived(s, holder)
	}
	if s.Per == PerRank && !strings.Contains(holder, "/") {
		return ev.foldRanks(s, holder)
	}
	key := s.Name
	if holder != "" {
		key += "(" + holder + ")"
	}
	if ev.k < 0 {
		return unknown("no sample in the window shows %s", key)
	}
	if s.Kind == KindCounter {
		return ev.increase(s, key)
	}
	v := ev.env.sampled(&ev.env.rec.Samples[ev.k], key)
	v.unit = s.Unit
	if s.Bool && v.st == stKnown {
		return boolean(truthOf(v.lo != 0))
	}
	return v
}

func truthOf(b bool) Truth {
	if b {
		return True
	}
	return False
}

// sampled reads one key of one sample.
func (e *Env) sampled(s *record.Sample, key string) value {
	if v, ok := s.Values[key]; ok {
		return num(v, UnitNone)
	}
	if t, ok := s.Text[key]; ok {
		return value{st: stKnown, text: t, margin: math.NaN()}
	}
	if slices.Contains(s.Absent, key) {
		return value{st: stAbsent, why: key, margin: math.NaN()}
	}
	return unknown("%s was not sampled", key)
}

// increase is how much a counter grew over the samples of the window. A counter that falls has started
// again from zero, so what it shows is all new.
func (ev evaluator) increase(s Series, key string) value {
	total, prev, have := 0.0, 0.0, false
	var last value
	for i := ev.env.firstSample(ev.lo); i <= ev.k; i++ {
		last = ev.env.sampled(&ev.env.rec.Samples[i], key)
		if last.st != stKnown {
			continue
		}
		switch {
		case have && last.lo >= prev:
			total += last.lo - prev
		case have:
			total += last.lo
		}
		prev, have = last.lo, true
	}
	if !have && last.st == stAbsent {
		return last
	}
	if !have {
		return unknown("%s was not sampled in the window", key)
	}
	return num(total, s.Unit)
}

// foldRanks combines the ranks of a worker: the sum of counts, the worst of conditions and lags.
func (ev evaluator) foldRanks(s Series, worker string) value {
	var vs []value
	for r := range ev.env.ranks {
		v := ev.series(s, worker+"/"+strconv.Itoa(r))
		if v.st != stKnown {
			return v
		}
		vs = append(vs, v)
	}
	if s.Bool {
		return foldTruth(vs, s.fold == "min")
	}
	if s.Text || len(vs) == 1 {
		return vs[0]
	}
	return foldNumbers(s.fold, vs)
}

// derived computes a gauge that no sample holds.
func (ev evaluator) derived(s Series, holder string) value {
	e := ev.env
	switch s.Name {
	case "open_requests":
		return ev.openRequests(holder)
	case "hung_streams":
		if ev.k < 0 {
			return unknown("no sample in the window shows hung_streams")
		}
		v := num(0, UnitNone)
		v.lo, v.hi = e.hungAt(ev.k)
		return v
	case "error_rate":
		ended := len(e.events("requests", ev.lo, ev.hi))
		if ended == 0 {
			return unknown("no request has ended")
		}
		return num(float64(len(e.events("failed", ev.lo, ev.hi)))/float64(ended), UnitNone)
	case "requests_per_s":
		const trailing = 10
		n := 0.0
		for _, x := range e.events("requests", ev.hi-trailing*1e9, ev.hi) {
			if x.worker == holder {
				n++
			}
		}
		return num(n/trailing, s.Unit)
	}
	return unknown("%s cannot be computed", s.Name)
}

// openRequests reads the link proxies' log. A record without any link cannot tell.
func (ev evaluator) openRequests(worker string) value {
	if len(ev.env.rec.Links) == 0 {
		return unknown("the record holds no link log")
	}
	if ev.at != nil {
		return num(ev.env.openAt(worker, *ev.at), UnitNone)
	}
	if ev.k < 0 {
		return unknown("no sample in the window shows open_requests(%s)", worker)
	}
	s := ev.env.rec.Samples[ev.k]
	return num(ev.env.openAt(worker, record.Interval{Lo: s.SentNs, Hi: s.ReceivedNs}), UnitNone)
}

func (ev evaluator) call(n *call) value {
	name, steady := strings.CutPrefix(n.name, steadyPrefix)
	if steady {
		from, ok1 := ev.env.marks["steady.start"]
		to, ok2 := ev.env.marks["steady.end"]
		if !ok1 || !ok2 {
			return unknown("the steady window has not ended")
		}
		ev.lo, ev.hi, ev.window, ev.k = from.Hi, to.Lo, true, ev.env.lastSample(to.Lo)
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

func isStream(n *call) bool { _, ok := streamOf(n); return ok }

// reduce turns a stream into a number.
func (ev evaluator) reduce(name string, n *call) value {
	stream, worker := n.of, ""
	if p, ok := n.arg.(*path); ok {
		stream = p.name
	}
	if n.worker != nil {
		if worker = ev.env.Worker(n.worker.name); worker == "" {
			return unknown("%s is not chosen yet", n.worker.name)
		}
	}
	all := ev.kept(ev.env.events(stream, ev.lo, ev.hi))
	mine := all
	if worker != "" {
		mine = slices.DeleteFunc(slices.Clone(all), func(x event) bool { return x.worker != worker })
	}
	switch name {
	case "count":
		return num(float64(len(mine)), UnitNone)
	case "rate":
		if ev.hi <= ev.lo {
			return unknown("the window is empty")
		}
		return num(float64(len(mine))/seconds(ev.hi-ev.lo), UnitNone)
	case "share":
		return ev.share(stream, worker, all, mine)
	}
	return summary(name, stream, mine)
}

// kept leaves out the events of excepted workers.
func (ev evaluator) kept(all []event) []event {
	return slices.DeleteFunc(all, func(x event) bool { return slices.Contains(ev.except, x.worker) })
}

// share is a worker's part of a stream, or, without a worker, the stream's part of the requests.
func (ev evaluator) share(stream, worker string, all, mine []event) value {
	whole := len(all)
	if worker == "" {
		whole = len(ev.kept(ev.env.events("requests", ev.lo, ev.hi)))
	}
	if whole == 0 {
		return unknown("there is no request to take a share of in the window")
	}
	return num(float64(len(mine))/float64(whole), UnitNone)
}

func summary(name, stream string, events []event) value {
	need := quantiles[name].min
	if len(events) == 0 {
		return unknown("the window has no value of %s", stream)
	}
	if len(events) < need {
		return unknown("%s(%s) needs %d values and the window has %d", name, stream, need, len(events))
	}
	values := make([]float64, len(events))
	sum := 0.0
	for i, x := range events {
		values[i] = x.value
		sum += x.value
	}
	unit := catalogue[stream].Unit
	switch name {
	case "mean":
		return num(sum/float64(len(values)), unit)
	case "max":
		return num(slices.Max(values), unit)
	case "min":
		return num(slices.Min(values), unit)
	}
	return num(quantile(values, quantiles[name].q), unit)
}

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

// overTime is mean, max or min of a gauge over the samples of the window; outside a window it is the value
// itself. The mean weighs each sample with the time until the next one.
func (ev evaluator) overTime(name string, at func(evaluator) value) value {
	if !ev.window {
		return at(ev)
	}
	var vs []value
	total, weight := 0.0, 0.0
	samples := ev.env.rec.Samples
	for i := ev.env.firstSample(ev.lo); i < len(samples) && samples[i].ReceivedNs <= ev.hi; i++ {
		in := ev
		in.k, in.window = i, false
		v := at(in)
		if v.st != stKnown {
			continue
		}
		until := ev.hi
		if i+1 < len(samples) {
			until = min(until, samples[i+1].ReceivedNs)
		}
		w := seconds(until-samples[i].ReceivedNs) + 1e-9 // the last sample of a window counts a little
		total, weight = total+w*(v.lo+v.hi)/2, weight+w
		vs = append(vs, v)
	}
	if len(vs) == 0 {
		return unknown("the window has no sample of it")
	}
	if name == "mean" {
		return num(total/weight, vs[0].unit)
	}
	return foldNumbers(name, vs)
}

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
		ev.lo = at.Hi
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
