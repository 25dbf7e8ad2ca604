package predicate

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"fleetdrill/drills/record"
)

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
	v := ev.env.reading(s, ev.k, key)
	v.unit = s.Unit
	if s.Bool && v.st == stKnown {
		return boolean(truthOf(v.lo != 0))
	}
	return v
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

// reading is a gauge at sample k. One that is read more seldom than samples are taken keeps its last
// reading until the next one, or until that is overdue.
func (e *Env) reading(s Series, k int, key string) value {
	v := e.sampled(&e.rec.Samples[k], key)
	for i := k - 1; v.st == stUnknown && i >= max(0, k-3*s.Every+1); i-- {
		v = e.sampled(&e.rec.Samples[i], key)
	}
	return v
}

// increase is how much a counter grew over the samples of the window. A counter that falls has started
// again from zero, so what it shows is all new.
func (ev evaluator) increase(s Series, key string) value {
	total, prev, have := 0.0, 0.0, false
	var last value
	for i := ev.base(); i <= ev.k; i++ {
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

// base is the sample from which counters count: the first one of the window or, after a mark, the last one
// before it, so that what happened between the mark and the next sample is not lost.
func (ev evaluator) base() int {
	if ev.mark != nil {
		return max(0, ev.env.lastSample(ev.mark.Lo))
	}
	return ev.env.firstSample(ev.lo)
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
	case "retry_amplification":
		return ev.amplification()
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

// amplification compares what reached the engines with what was sent, both by the instant at which it began.
func (ev evaluator) amplification() value {
	if len(ev.env.rec.Links) == 0 {
		return unknown("the record holds no link log")
	}
	attempts, sent := 0.0, 0.0
	for i := range ev.env.rec.Links {
		if l := &ev.env.rec.Links[i]; l.Method != "GET" && l.StartNs >= ev.lo && l.StartNs <= ev.hi {
			attempts++
		}
	}
	for i := range ev.env.rec.Requests {
		if at := ev.env.rec.Requests[i].SentNs; at != 0 && at >= ev.lo && at <= ev.hi {
			sent++
		}
	}
	if sent == 0 {
		return unknown("no request was sent in the window")
	}
	return num(attempts/sent, UnitNone)
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
