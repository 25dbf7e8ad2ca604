package judge

import (
	"fmt"

	"fleetdrill/drills/predicate"
	"fleetdrill/drills/record"
	"fleetdrill/drills/scenario"
)

// sighting is what the samples say about when a predicate became true after a mark: seen first at sample
// first (-1: never), last false before it at sample falseK (-1: never seen false).
type sighting struct {
	first, falseK int
	// held is false when the predicate was true at the end of the record, but not yet for the hold time.
	held bool
	// why is the newest reason for an unknown value.
	why string
}

// look scans the samples received after a mark up to limit.
func (j *judging) look(x scenario.Expectation, m record.Interval, limit int64) sighting {
	out := sighting{first: -1, falseK: -1}
	for k := range j.rec.Samples {
		s := &j.rec.Samples[k]
		if s.ReceivedNs < m.Hi {
			continue
		}
		if s.ReceivedNs > limit {
			break
		}
		switch r := x.That.After(j.env, k, m); r.Truth {
		case predicate.False:
			out.first, out.falseK = -1, k
		case predicate.True:
			if out.first < 0 {
				out.first = k
			}
			if s.ReceivedNs-j.rec.Samples[out.first].ReceivedNs >= int64(x.Hold) {
				out.held = true
				return out
			}
		default:
			out.why = r.Why
		}
	}
	return out
}

// limit is the instant to which a late event is still looked for: the end of settle, or of the record.
func (j *judging) limit() int64 {
	if m, ok := j.env.Mark(predicate.Mark{Name: "settle.end"}); ok {
		return m.Hi
	}
	if n := len(j.rec.Samples); n > 0 {
		return j.rec.Samples[n-1].ReceivedNs
	}
	return 0
}

// after decides `after M within B that P hold H`.
func (j *judging) after(x scenario.Expectation) Result {
	m, _ := j.env.Mark(x.After)
	r := Result{Unit: string(predicate.UnitTime), Bound: ptr(x.Within.Seconds()), FromNs: m.Hi}
	at := j.look(x, m, j.limit())
	if at.first < 0 {
		return j.neverSeen(x, r, m, at)
	}
	first := j.rec.Samples[at.first]
	r.DecidedNs, r.ToNs = first.ReceivedNs, first.ReceivedNs
	if !at.held {
		return unknown(r, fmt.Sprintf("The record ends before %s had held for %s.", j.show(x.That.String()), x.Hold))
	}
	// The state changed between the last sample that still showed the old one and this sample, so its time
	// is in [low, high]; the mark's own width belongs to it.
	low, since := int64(0), m.Hi
	if at.falseK >= 0 {
		low, since = max(0, j.rec.Samples[at.falseK].SentNs-m.Hi), j.rec.Samples[at.falseK].ReceivedNs
	}
	point, high := first.ReceivedNs-m.Hi, first.ReceivedNs-m.Lo
	j.env.SetMark(x.ID+".seen", record.Interval{Lo: m.Hi + low, Hi: first.ReceivedNs})
	r.Value, r.Low, r.High = ns(point), ns(low), ns(high)
	r.Margin = ptr(x.Within.Seconds() - *r.Value)
	r.ValueText = j.interval(point, low, high)
	return j.bounded(x, r, point, low, high, first.ReceivedNs-since > j.rec.MaxGapNs)
}

// bounded compares a measured time with its bound: the interval decides where it can, the point where it
// must, and a hole in the deciding slot leaves it open.
func (j *judging) bounded(x scenario.Expectation, r Result, point, low, high int64, hole bool) Result {
	bound := int64(x.Within)
	switch {
	case high <= bound:
		r.Verdict = Pass
	case low > bound:
		r.Verdict = Fail
	case hole:
		r.Hole = true
		return unknown(r, fmt.Sprintf("No sample decides whether %s within %s: the samples there are %s apart.",
			j.phrase(x.That).became, x.Within, j.seconds(high-low)))
	default:
		r = j.borderline(r, point <= bound+j.rec.PeriodNs)
	}
	p := j.phrase(x.That)
	text := p.became
	if r.Verdict == Fail {
		text = p.still
	}
	r.Sentence = fmt.Sprintf("%s %s after %s; bound %s%s%s.", sentenceCase(text), r.ValueText, j.since(x.After, p.worker), j.bound(x.Within),
		j.traffic(x.That, r.FromNs, r.DecidedNs), borderlineNote(r))
	return r
}

// borderline is the outcome of an interval that straddles its bound.
func (j *judging) borderline(r Result, ok bool) Result {
	r.Borderline = true
	switch {
	case j.o.Strict:
		r.Verdict = Unknown
	case ok:
		r.Verdict = Pass
	default:
		r.Verdict = Fail
	}
	return r
}

// borderlineNote says that the point decided, so that nobody takes such a verdict for a clear one.
func borderlineNote(r Result) string {
	if !r.Borderline {
		return ""
	}
	return "; borderline: the interval straddles the bound"
}

// neverSeen decides when no sample showed the state: a failure only if it was still seen false after the
// bound.
func (j *judging) neverSeen(x scenario.Expectation, r Result, m record.Interval, at sighting) Result {
	if at.falseK < 0 {
		why := at.why
		if why == "" {
			why = "there is no sample after the mark"
		}
		return unknown(r, fmt.Sprintf("Nothing is known of %s after %s: %s.", j.show(x.That.String()), x.After, why))
	}
	last := j.rec.Samples[at.falseK]
	r.DecidedNs, r.ToNs = last.ReceivedNs, last.ReceivedNs
	r.Value, r.Low = ns(last.ReceivedNs-m.Hi), ns(max(0, last.SentNs-m.Hi))
	r.ValueText = "> " + j.seconds(last.ReceivedNs-m.Hi)
	p := j.phrase(x.That)
	if last.SentNs-m.Hi < int64(x.Within) {
		r.Hole = true
		return unknown(r, fmt.Sprintf("%s %s after %s, and no later sample tells; bound %s.",
			sentenceCase(p.still), j.seconds(last.ReceivedNs-m.Hi), j.since(x.After, p.worker), j.bound(x.Within)))
	}
	r.Verdict, r.Margin = Fail, ptr(x.Within.Seconds()-*r.Value)
	r.Sentence = fmt.Sprintf("%s %s after %s (the end of the window); bound %s%s.", sentenceCase(p.still),
		j.seconds(last.ReceivedNs-m.Hi), j.since(x.After, p.worker), j.bound(x.Within), j.traffic(x.That, r.FromNs, r.DecidedNs))
	return r
}

// unknown keeps what was measured and takes only the verdict away.
func unknown(r Result, sentence string) Result {
	r.Verdict, r.Sentence = Unknown, sentence
	return r
}

func ptr(v float64) *float64 { return &v }

func ns(v int64) *float64 { return ptr(float64(v) / 1e9) }
