package predicate

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"fleetdrill/drills/record"
	"fleetdrill/replayer/load"
)

// Env is what predicates are evaluated over: a record, complete or still growing, and its marks.
//
// It reads the record as it is at NewEnv and computes what it derives on first use, so a live caller makes
// a new one per sample; that costs time in proportion to the requests so far only when a predicate reads
// requests. An Env is not safe for concurrent use.
type Env struct {
	rec   *record.Record
	marks map[string]record.Interval
	ranks int
	// hung is what hung_streams is computed from, nil until first needed.
	hung *hungStreams
}

// NewEnv prepares a record for evaluation. The record must not change while the Env is in use.
func NewEnv(rec *record.Record) *Env {
	e := &Env{rec: rec, marks: map[string]record.Interval{}, ranks: max(1, rec.Ranks)}
	for _, m := range rec.Marks {
		e.marks[m.Name] = m.Interval
	}
	return e
}

// SetMark adds a mark that is derived while judging, such as EXPECTATION.seen.
func (e *Env) SetMark(name string, at record.Interval) { e.marks[name] = at }

// Mark is the instant of a mark expression; false when its mark has not come.
func (e *Env) Mark(m Mark) (record.Interval, bool) {
	base, ok := e.marks[m.Name]
	if !ok {
		return record.Interval{}, false
	}
	return m.From(base), true
}

// Worker resolves a worker reference such as w3 or death.target; "" when the fault has no target yet.
func (e *Env) Worker(ref string) string {
	if fault, ok := strings.CutSuffix(ref, ".target"); ok {
		return e.rec.Targets[fault]
	}
	return ref
}

// loadStart is the instant from which live counters and streams count: the first mark LOAD.start, else the
// first scheduled send, else the first sample.
func (e *Env) loadStart() int64 {
	start := int64(math.MaxInt64)
	for _, r := range e.rec.Requests {
		if m, ok := e.marks[r.Load+".start"]; ok {
			start = min(start, m.Lo)
		}
		start = min(start, r.ScheduledNs)
	}
	if start == math.MaxInt64 && len(e.rec.Samples) > 0 {
		start = e.rec.Samples[0].SentNs
	}
	return start
}

// holders are the names a lift over a series ranges over: workers, or ranks.
func (e *Env) holders(s Series) []string {
	if s.Per != PerRank {
		return e.rec.Workers
	}
	var out []string
	for _, w := range e.rec.Workers {
		for r := range e.ranks {
			out = append(out, w+"/"+strconv.Itoa(r))
		}
	}
	return out
}

// event is one element of a stream: when it became known, its value, and who served it.
type event struct {
	at     int64
	value  float64
	worker string
}

// events yields the elements of a stream in the window [lo, hi].
func (e *Env) events(name string, lo, hi int64) []event {
	var out []event
	add := func(at int64, v float64, r *load.Record) {
		if at != 0 && at >= lo && at <= hi {
			out = append(out, event{at, v, r.Worker})
		}
	}
	for i := range e.rec.Requests {
		r := &e.rec.Requests[i]
		switch name {
		case "requests":
			add(r.EndNs, 1, r)
		case "failed":
			addIf(add, r.Outcome == load.OutcomeFailed, r.EndNs, r)
		case "aborted":
			addIf(add, r.Outcome == load.OutcomeAborted, r.EndNs, r)
		case "retried":
			addIf(add, r.Attempts > 1, r.EndNs, r)
		case "new_prefix":
			addIf(add, r.NewPrefix, r.SentNs, r)
		case "misses":
			addIf(add, r.Predicted == 0, r.HeadersNs, r)
		case "hit_fraction":
			if r.Outcome == load.OutcomeOK && r.PromptTokens > 0 {
				add(r.EndNs, float64(r.Cached)/float64(r.PromptTokens), r)
			}
		case "ttft":
			add(r.FirstNs, seconds(r.FirstNs-r.ScheduledNs), r)
		case "latency":
			if r.Outcome == load.OutcomeOK {
				add(r.EndNs, seconds(r.EndNs-r.ScheduledNs), r)
			}
		case "send_lag":
			add(r.SentNs, seconds(r.SentNs-r.ScheduledNs), r)
		case "gap":
			for _, g := range chunkGaps(r) {
				add(g.Hi, seconds(g.Hi-g.Lo), r)
			}
		}
	}
	return out
}

func addIf(add func(int64, float64, *load.Record), ok bool, at int64, r *load.Record) {
	if ok {
		add(at, 1, r)
	}
}

// chunkGaps are the pauses between chunks of a stream with their instants; only the longest when the
// record keeps no list.
func chunkGaps(r *load.Record) []record.Interval {
	if len(r.GapsNs) == 0 {
		if r.MaxGapNs == 0 {
			return nil
		}
		return []record.Interval{{Lo: r.MaxGapEndNs - r.MaxGapNs, Hi: r.MaxGapEndNs}}
	}
	out := make([]record.Interval, 0, len(r.GapsNs))
	at := r.FirstNs
	for _, g := range r.GapsNs {
		out = append(out, record.Interval{Lo: at, Hi: at + g})
		at += g
	}
	return out
}

func seconds(ns int64) float64 { return float64(ns) / 1e9 }

// quantile is the nearest-rank quantile of values, which it sorts.
func quantile(values []float64, q float64) float64 {
	slices.Sort(values)
	i := int(math.Ceil(q*float64(len(values)))) - 1
	return values[max(0, min(i, len(values)-1))]
}

// openAt counts the requests forwarded to a worker that were surely or possibly open in at: forwarded
// before its end and unfinished at its beginning. Health requests (GET) are not counted.
func (e *Env) openAt(worker string, at record.Interval) float64 {
	n := 0
	for _, l := range e.rec.Links {
		if l.Worker == worker && l.Method != "GET" && l.StartNs < at.Hi && (l.EndNs == 0 || l.EndNs > at.Lo) {
			n++
		}
	}
	return float64(n)
}

// Samples are the indices of the first and last sample that lie wholly in [from, to]; first > last when
// there is none.
func (e *Env) Samples(from, to int64) (first, last int) {
	return e.firstSample(from), e.lastSample(to)
}
