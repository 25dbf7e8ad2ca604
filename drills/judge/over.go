package judge

import (
	"fmt"
	"math"
	"strings"

	"fleetdrill/drills/predicate"
	"fleetdrill/drills/record"
	"fleetdrill/drills/scenario"
)

// window is a stretch of the run that surely lies between two marks: from the later end of the first to
// the earlier end of the second. Samples first..last lie wholly in it.
type window struct {
	from, to    int64
	outer       record.Interval // all that may belong to it: from the earlier end of the first mark to the later end of the second
	first, last int
	r           predicate.Range
}

// window resolves a range of marks; false when nothing lies in it.
func (j *judging) window(r predicate.Range) (window, bool) {
	a, _ := j.env.Mark(r.From)
	b, _ := j.env.Mark(r.To)
	w := window{from: a.Hi, to: b.Lo, outer: record.Interval{Lo: a.Lo, Hi: b.Hi}, r: r}
	w.first, w.last = j.env.Samples(w.from, w.to)
	return w, w.to > w.from && w.first <= w.last
}

// result starts a result that shows the window; a rule that decides at one sample narrows it.
func (w window) result() Result { return Result{FromNs: w.from, ToNs: w.to, DecidedNs: w.to} }

// streak is a run of samples at which a rule did not hold. It lasted between low and high; point is the
// time from the first sample that showed it to the first that no longer did.
type streak struct {
	first, last      int
	point, low, high int64
}

// scan is what one pass over the samples of a window found.
type scan struct {
	longest *streak
	first   *streak // the first streak, for "when did it begin"
	broken  int     // samples at which the rule did not hold
	known   int
	hole    bool
	why     string
	// worst is the result with the smallest margin among the samples that decide.
	worst predicate.Result
	// seen is the first sample at which the predicate itself was true, -1 when none.
	seen int
	// full says that a sliding window was full at least once.
	full bool
}

// scan evaluates a rule at every sample; want is the truth that the rule asks for.
func (j *judging) scan(x scenario.Expectation, w window, want predicate.Truth) scan {
	out := scan{seen: -1, worst: predicate.Result{Margin: math.NaN(), Value: math.NaN()}}
	prev := w.from // the newest instant at which the rule's state was known
	var open *streak
	for k := w.first; k <= w.last; k++ {
		s := j.rec.Samples[k]
		r, full := j.at(x, w, k)
		if !full {
			prev = s.ReceivedNs
			continue
		}
		out.full = true
		if r.Truth == predicate.Unknown {
			out.why = r.Why
			continue
		}
		out.known++
		out.hole = out.hole || s.ReceivedNs-prev > j.rec.MaxGapNs
		prev = s.ReceivedNs
		if r.Truth == predicate.True && out.seen < 0 {
			out.seen = k
		}
		out.keepWorst(r, want)
		open = out.extend(j.rec.Samples, open, k, r.Truth == want)
	}
	out.hole = out.hole || w.to-prev > j.rec.MaxGapNs
	if open != nil {
		out.close(j.rec.Samples, open, len(j.rec.Samples), w.to)
	}
	return out
}

// at evaluates a rule at one sample of its window; false while a sliding window is not full yet.
func (j *judging) at(x scenario.Expectation, w window, k int) (predicate.Result, bool) {
	if x.Window == 0 {
		return x.That.At(j.env, k, w.from), true
	}
	end := j.rec.Samples[k].ReceivedNs
	if end-int64(x.Window) < w.from {
		return predicate.Result{}, false
	}
	return x.That.Over(j.env, end-int64(x.Window), end), true
}

// keepWorst keeps the comparison that came closest to breaking the rule, or broke it most: the one figure
// that says how much room there was.
func (sc *scan) keepWorst(r predicate.Result, want predicate.Truth) {
	if want == predicate.False {
		r.Margin = 0 - r.Margin // and not -r.Margin, which prints a -0
	}
	if !math.IsNaN(r.Value) && (math.IsNaN(sc.worst.Margin) || r.Margin < sc.worst.Margin) {
		sc.worst = r
	}
}

// extend opens, continues or closes the current streak of broken samples.
func (sc *scan) extend(samples []record.Sample, open *streak, k int, holds bool) *streak {
	switch {
	case !holds && open == nil:
		open = &streak{first: k, last: k}
		sc.broken++
	case !holds:
		open.last = k
		sc.broken++
	case open != nil:
		sc.close(samples, open, k, samples[k].ReceivedNs)
		open = nil
	}
	return open
}

// close measures a streak that ended at sample next, or at the end of the window.
func (sc *scan) close(samples []record.Sample, s *streak, next int, end int64) {
	first, last := samples[s.first], samples[s.last]
	s.low = max(0, last.SentNs-first.ReceivedNs)
	s.point = end - first.ReceivedNs
	s.high = end - first.SentNs
	if s.first > 0 {
		s.high = end - samples[s.first-1].SentNs
	}
	if next >= len(samples) {
		s.point = max(s.low, s.point)
	}
	if sc.first == nil {
		sc.first = s
	}
	if sc.longest == nil || s.point > sc.longest.point {
		sc.longest = s
	}
}

// always decides `always P` with its allowed streak, and `never P`, which is always not P.
func (j *judging) always(x scenario.Expectation, w window) Result {
	want := predicate.True
	if x.Op == scenario.OpNever {
		want = predicate.False
	}
	sc := j.scan(x, w, want)
	r := j.measured(w.result(), sc)
	if sc.longest != nil && sc.longest.low > int64(x.Streak) || (sc.broken > 0 && x.Streak == 0) {
		return j.brokenRule(x, r, sc, Fail)
	}
	if u, ok := j.undecided(x, r, sc); !ok {
		return u
	}
	if sc.longest != nil && sc.longest.high > int64(x.Streak) {
		b := j.borderline(r, sc.longest.point <= int64(x.Streak)+j.rec.PeriodNs)
		return j.brokenRule(x, b, sc, b.Verdict)
	}
	r.Verdict = Pass
	if sc.longest != nil {
		return j.brokenRule(x, r, sc, Pass)
	}
	r.Sentence = fmt.Sprintf("%s (%s over %s).", sentenceCase(j.phrase(x.That).stayed(x.Op)), plural(sc.known, "sample"), j.seconds(w.to-w.from))
	return r
}

// measured puts the worst comparison of a scan, or else its longest streak, into a result.
func (j *judging) measured(r Result, sc scan) Result {
	if !math.IsNaN(sc.worst.Value) {
		return j.compared(r, sc.worst)
	}
	if sc.longest != nil {
		s := sc.longest
		r.Unit = string(predicate.UnitTime)
		r.Value, r.Low, r.High = ns(s.point), ns(s.low), ns(s.high)
		r.ValueText = j.interval(s.point, s.low, s.high)
	}
	return r
}

// brokenRule words a rule that did not hold at some samples, whether that fails or is allowed.
func (j *judging) brokenRule(x scenario.Expectation, r Result, sc scan, v Verdict) Result {
	r.Verdict = v
	first := j.rec.Samples[sc.first.first]
	r.DecidedNs = first.ReceivedNs
	a, _ := j.env.Mark(x.Over.From)
	p := j.phrase(x.That)
	allowed := ""
	if x.Streak > 0 {
		allowed = fmt.Sprintf("; allowed streak %s", j.bound(x.Streak))
	}
	r.Sentence = fmt.Sprintf("%s at %d of %d samples, for up to %s, first %s after %s%s%s%s.", sentenceCase(p.broke(x.Op)), sc.broken, sc.known,
		j.seconds(sc.longest.point), j.seconds(first.ReceivedNs-a.Hi), j.since(x.Over.From, p.worker), j.worst(r), allowed, borderlineNote(r))
	return r
}

// worst names the worst value of a comparison.
func (j *judging) worst(r Result) string {
	if r.Bound == nil {
		return ""
	}
	return fmt.Sprintf("; at worst %s against %s", r.ValueText, Number(*r.Bound, r.Unit))
}

// undecided reports a window in which something may have gone unseen; ok is true when nothing has.
func (j *judging) undecided(x scenario.Expectation, r Result, sc scan) (Result, bool) {
	switch {
	case !sc.full:
		return unknown(r, fmt.Sprintf("The sliding window of %s was never full between %s.", x.Window, x.Over)), false
	case sc.known == 0:
		return unknown(r, fmt.Sprintf("Nothing is known of %s in the window: %s.", j.show(x.That.String()), sc.why)), false
	case sc.hole:
		r.Hole = true
		why := "the samples have a hole longer than " + j.seconds(j.rec.MaxGapNs)
		if sc.why != "" {
			why += " (" + sc.why + ")"
		}
		return unknown(r, fmt.Sprintf("%s may have changed unseen: %s.", sentenceCase(j.show(x.That.String())), why)), false
	}
	return r, true
}

// atLeastOnce decides `at_least_once P` and gives its mark .seen.
func (j *judging) atLeastOnce(x scenario.Expectation, w window) Result {
	sc := j.scan(x, w, predicate.True)
	r := w.result()
	if sc.seen >= 0 {
		s := j.rec.Samples[sc.seen]
		j.env.SetMark(x.ID+".seen", record.Interval{Lo: s.SentNs, Hi: s.ReceivedNs})
		r.Verdict, r.DecidedNs, r.ToNs = Pass, s.ReceivedNs, s.ReceivedNs
		r.Unit, r.Value = string(predicate.UnitTime), ns(s.ReceivedNs-w.from)
		r.ValueText = j.seconds(s.ReceivedNs - w.from)
		r.Sentence = fmt.Sprintf("%s was true, first %s after %s.", sentenceCase(j.show(x.That.String())), r.ValueText, x.Over.From)
		return r
	}
	if u, ok := j.undecided(x, r, sc); !ok {
		return u
	}
	if !math.IsNaN(sc.worst.Value) {
		r = j.compared(r, sc.worst)
	}
	r.Verdict = Fail
	r.Sentence = fmt.Sprintf("%s was never true in %d samples over %s%s.", sentenceCase(j.show(x.That.String())), sc.known, j.seconds(w.to-w.from), j.worst(r))
	return r
}

// that decides `that P` on the aggregate over the window, or over its last stretch of x.Window.
func (j *judging) that(x scenario.Expectation, w window) Result {
	from := w.from
	if x.Window > 0 {
		from = max(from, w.to-int64(x.Window))
	}
	p, differ := j.bothWays(x, from, w)
	r := j.compared(w.result(), p)
	if p.Truth != predicate.False && j.holed(x.That, w) {
		r.Hole = true
		return unknown(r, fmt.Sprintf("%s may have changed unseen: the samples have a hole longer than %s.", sentenceCase(j.show(x.That.String())), j.seconds(j.rec.MaxGapNs)))
	}
	switch p.Truth {
	case predicate.True:
		r.Verdict = Pass
	case predicate.False:
		r.Verdict = Fail
	default:
		return unknown(r, fmt.Sprintf("%s is not known: %s.", sentenceCase(j.show(x.That.String())), p.Why))
	}
	r.Sentence = j.comparisonSentence(x, r, w)
	if differ {
		r = j.borderline(r, p.Truth == predicate.True)
		r.Sentence = strings.TrimSuffix(r.Sentence, ".") + "; borderline: it depends on an event within the width of a mark."
	}
	return r
}

// bothWays evaluates an aggregate over the window, and for what a client saw also over all that may belong
// to it: a stream that an engine's death cut has failed before the lab's proof of the death arrived, and
// belongs to what followed. The less favourable answer counts; differ says that the two disagree.
func (j *judging) bothWays(x scenario.Expectation, from int64, w window) (p predicate.Result, differ bool) {
	p = x.That.Over(j.env, from, w.to)
	if x.That.Sampled() || x.Window > 0 || (w.outer.Lo == w.from && w.outer.Hi == w.to) {
		return p, false
	}
	wide := x.That.Over(j.env, w.outer.Lo, w.outer.Hi)
	if wide.Truth == p.Truth {
		if wide.Margin < p.Margin {
			return wide, false
		}
		return p, false
	}
	if p.Truth == predicate.False || wide.Truth == predicate.True {
		return p, true
	}
	return wide, true
}

// holed reports whether the samples of a window leave a stretch longer than max_gap unobserved that the
// predicate depends on: at the ends for anything sampled, inside for what follows a gauge.
func (j *judging) holed(x *predicate.Expr, w window) bool {
	if !x.Sampled() {
		return false
	}
	prev := w.from
	for k := w.first; k <= w.last; k++ {
		at := j.rec.Samples[k].ReceivedNs
		if at-prev > j.rec.MaxGapNs && (k == w.first || x.Tracks()) {
			return true
		}
		prev = at
	}
	return w.to-prev > j.rec.MaxGapNs
}

// compared puts the sides of a comparison into a result.
func (j *judging) compared(r Result, p predicate.Result) Result {
	if math.IsNaN(p.Value) {
		return r
	}
	r.Unit = string(p.Unit)
	r.Value, r.Bound = ptr(p.Value), ptr(p.Bound)
	if p.Low != p.High {
		r.Low, r.High = ptr(p.Low), ptr(p.High)
	}
	if !math.IsNaN(p.Margin) {
		r.Margin = ptr(p.Margin)
	}
	r.ValueText = Number(p.Value, r.Unit)
	if p.Low != p.High {
		r.ValueText += fmt.Sprintf(" (%s-%s)", strings.TrimSuffix(Number(p.Low, r.Unit), " s"), strings.TrimSuffix(Number(p.High, r.Unit), " s"))
	}
	return r
}

// comparisonSentence gives both sides of a comparison as numbers; a computed bound is explained.
func (j *judging) comparisonSentence(x scenario.Expectation, r Result, w window) string {
	left, op, right, literal, ok := x.That.Comparison()
	if !ok || r.Value == nil {
		truth := "true"
		if r.Verdict == Fail {
			truth = "false"
		}
		return fmt.Sprintf("%s was %s over %s.", sentenceCase(j.show(x.That.String())), truth, j.seconds(w.to-w.from))
	}
	bound := Number(*r.Bound, r.Unit)
	if !literal {
		bound += " (" + j.show(right) + ")"
	}
	return fmt.Sprintf("%s was %s over %s; required %s %s.", sentenceCase(j.show(left)), r.ValueText, j.seconds(w.to-w.from), words(op), bound)
}

// words says an operator as a person would.
func words(op string) string {
	return map[string]string{"<=": "at most", "<": "less than", ">=": "at least", ">": "more than", "==": "exactly", "!=": "anything but"}[op]
}
