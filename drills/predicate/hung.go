package predicate

import (
	"math"
	"time"

	"fleetdrill/drills/record"
	"fleetdrill/replayer/load"
)

// Thresholds of hung_streams. The floors are far above what a healthy mock fleet shows (token gaps of
// 20 ms, TTFT below 1 s); the multiples keep a slow profile from being called hung.
const (
	hungGapFloor   = 5 * time.Second
	hungGapFactor  = 20
	hungTTFTFloor  = 10 * time.Second
	hungTTFTFactor = 5
	// hungDrain is how long after the end of its load a stream may still be open.
	hungDrain = 10 * time.Second
)

// hungStreams holds the silences long enough to count as hung at some instant.
type hungStreams struct {
	silences []silence
	pauses   map[string][]record.Interval
	// stuck are requests open at the end of the record, with the instant from which that counts.
	stuck map[int]int64
}

// silence is a time in which request req got no byte. first says that the first byte was still owed.
type silence struct {
	record.Interval
	req    int
	worker string
	first  bool
	limit  int64
}

// hungData prepares the silences once per Env.
func (e *Env) hungData() *hungStreams {
	if e.hung != nil {
		return e.hung
	}
	h := &hungStreams{pauses: e.pauses(), stuck: map[int]int64{}}
	gap := e.steadyLimit("gap", hungGapFloor, hungGapFactor)
	ttft := e.steadyLimit("ttft", hungTTFTFloor, hungTTFTFactor)
	for i := range e.rec.Requests {
		r := &e.rec.Requests[i]
		for _, s := range silences(r) {
			s.req, s.worker, s.limit = i, r.Worker, gap
			if s.first {
				s.limit = ttft
			}
			if s.Hi-s.Lo > s.limit {
				h.silences = append(h.silences, s)
			}
		}
		if end, ok := e.marks[r.Load+".end"]; ok && r.EndNs == 0 {
			h.stuck[i] = end.Hi + int64(hungDrain)
		}
	}
	e.hung = h
	return h
}

// steadyLimit is max(floor, factor x the steady p99 of a stream); the floor alone without a steady window.
func (e *Env) steadyLimit(stream string, floor time.Duration, factor float64) int64 {
	from, ok1 := e.marks["steady.start"]
	to, ok2 := e.marks["steady.end"]
	if !ok1 || !ok2 {
		return int64(floor)
	}
	var values []float64
	for _, ev := range e.events(stream, from.Hi, to.Lo) {
		values = append(values, ev.value)
	}
	if len(values) == 0 {
		return int64(floor)
	}
	return max(int64(floor), int64(factor*quantile(values, 0.99)*1e9))
}

// silences splits a request into its silent stretches: before the first byte, between chunks, after the
// last byte. An open request is silent until further notice.
func silences(r *load.Record) []silence {
	end := r.EndNs
	if end == 0 {
		end = math.MaxInt64
	}
	if r.SentNs == 0 {
		return nil
	}
	if r.FirstNs == 0 {
		return []silence{{Interval: record.Interval{Lo: r.SentNs, Hi: end}, first: true}}
	}
	out := []silence{{Interval: record.Interval{Lo: r.SentNs, Hi: r.FirstNs}, first: true}}
	for _, g := range chunkGaps(r) {
		out = append(out, silence{Interval: g})
	}
	return append(out, silence{Interval: record.Interval{Lo: max(r.FirstNs, r.LastNs), Hi: end}})
}

// pauses are the times in which a declared fault pauses an engine.
func (e *Env) pauses() map[string][]record.Interval {
	out := map[string][]record.Interval{}
	for _, f := range e.rec.Faults {
		if f.Kind != "stop" && f.Kind != "pause" {
			continue
		}
		from, ok := e.marks[f.ID+".effective"]
		if !ok {
			continue
		}
		to, ok := e.marks[f.ID+".healed"]
		if !ok {
			to.Hi = math.MaxInt64
		}
		out[f.Target] = append(out[f.Target], record.Interval{Lo: from.Lo, Hi: to.Hi})
	}
	return out
}

// hungAt counts the streams that hang at sample k, as an interval: a stream whose engine could not be read
// may or may not be one.
func (e *Env) hungAt(k int) (lo, hi float64) {
	h, at := e.hungData(), e.rec.Samples[k].ReceivedNs
	homeless := 0
	for _, s := range h.silences {
		if at <= s.Lo || at >= s.Hi || h.counted(s, at) <= s.limit {
			continue
		}
		switch {
		case s.first && s.worker == "":
			homeless++
		case !s.first || e.engineWork(k, s.worker) == 0:
			lo++
			hi++
		case math.IsNaN(e.engineWork(k, s.worker)):
			hi++
		}
	}
	for _, from := range h.stuck {
		if at >= from {
			lo++
			hi++
		}
	}
	l, u := e.homelessHung(k, at, float64(homeless))
	return lo + l, hi + u
}

// counted is how long a silence has lasted at an instant, without the time a fault paused its engine.
func (h *hungStreams) counted(s silence, at int64) int64 {
	total := at - s.Lo
	for _, p := range h.pauses[s.worker] {
		if overlap := min(at, p.Hi) - max(s.Lo, p.Lo); overlap > 0 {
			total -= overlap
		}
	}
	return total
}

// engineWork is what an engine runs and queues at sample k: 0 when it is gone, NaN when not sampled.
func (e *Env) engineWork(k int, worker string) float64 {
	s := &e.rec.Samples[k]
	total := 0.0
	for _, name := range []string{"engine_running", "engine_waiting"} {
		v := e.sampled(s, name+"("+worker+")")
		switch v.st {
		case stUnknown:
			return math.NaN()
		case stKnown:
			total += v.lo
		}
	}
	return total
}

// homelessHung counts, among n silent requests of which no answer names the worker, those that no engine
// can have: the engines together hold fewer requests than clients have open. Requests younger than a
// second may be on their way and do not count as open.
func (e *Env) homelessHung(k int, at int64, n float64) (lo, hi float64) {
	if n == 0 {
		return 0, 0
	}
	held := 0.0
	for _, w := range e.rec.Workers {
		held += e.engineWork(k, w)
	}
	if math.IsNaN(held) {
		return 0, n
	}
	open := 0.0
	for i := range e.rec.Requests {
		r := &e.rec.Requests[i]
		if r.SentNs != 0 && r.SentNs < at-int64(time.Second) && (r.EndNs == 0 || r.EndNs > at) {
			open++
		}
	}
	missing := min(n, max(0, open-held))
	return missing, missing
}
