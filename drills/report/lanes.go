package report

import (
	"fmt"
	"slices"
	"strings"

	"fleetdrill/drills/record"
	"fleetdrill/replayer/load"
)

// maxTicks bounds the request ticks and dots of a picture; above it, requests that succeeded are thinned
// evenly, failed ones never.
const maxTicks = 3000

// State is what sample k says of a worker: the class of its segment in style.css (up, danger, down, veto,
// absent or hole) and its words.
func State(rec *record.Record, k int, w string) (class, words string) {
	s := rec.Samples[k]
	v, known := s.Values["routable("+w+")"]
	down := slices.Contains(s.Absent, "engine_running("+w+")")
	veto := s.Text["veto("+w+")"]
	switch {
	case !known && slices.Contains(s.Absent, "routable("+w+")"):
		return "absent", "no routing state: a fault owns the gateway"
	case !known && len(s.Values) > 0 && hasRouting(s):
		return "absent", "not in the gateway's registry"
	case !known:
		return "hole", "not sampled"
	case v != 0 && down:
		return "danger", "still routable, engine down"
	case v != 0:
		return "up", "routable"
	case down:
		return "down", "out of routing, engine down" + reason(veto)
	}
	return "veto", "not routable" + reason(veto)
}

// reason is the gateway's word for a veto in brackets. A gateway whose reasons cannot be seen has none.
func reason(veto string) string {
	if veto == "" || veto == "none" {
		return ""
	}
	return " (" + veto + ")"
}

// hasRouting reports whether a sample read the routing state at all.
func hasRouting(s record.Sample) bool {
	for k := range s.Values {
		if strings.HasPrefix(k, "routable(") {
			return true
		}
	}
	return false
}

// lanes has one lane per worker, and one for requests that failed without ever reaching any.
func lanes(rec *record.Record, s scale, zero int64, y float64) ([]lane, float64) {
	var out []lane
	names := slices.Clone(rec.Workers)
	homeless := slices.ContainsFunc(rec.Requests, func(q load.Record) bool {
		return q.Outcome == load.OutcomeFailed && !slices.Contains(rec.Workers, q.Worker)
	})
	if homeless {
		names = append(names, "")
	}
	keep := thinning(rec)
	for _, w := range names {
		l := lane{Label: w, Y: y, H: laneHeight, Mid: y + laneHeight/2 + 4}
		if w == "" {
			l.Label = "no worker"
		} else {
			l.Segs = segments(rec, s, zero, w)
		}
		l.Ticks = append(attemptTicks(rec, s, zero, w, y), requestTicks(rec, s, zero, w, y, keep)...)
		out = append(out, l)
		y += laneHeight + laneGap
	}
	return out, y
}

// segments merges samples of one state. A stretch longer than max_gap without a sample is its own,
// hatched, segment.
func segments(rec *record.Record, s scale, zero int64, w string) []segment {
	var out []segment
	add := func(from, to int64, class, words string) {
		if to <= s.from || from >= s.to || to <= from {
			return
		}
		x, end := s.x(from), s.x(to)
		if n := len(out); n > 0 && out[n-1].Class == class && class != "hole" && out[n-1].X+out[n-1].W >= x-0.2 {
			out[n-1].W = round(end - out[n-1].X)
			return
		}
		out = append(out, segment{x, round(end - x), class, fmt.Sprintf("%s: %s from %s", w, words, at(from, zero))})
	}
	// The stretch before the first sample is not a hole: nobody was looking yet.
	prev := s.from
	if n := len(rec.Samples); n > 0 {
		prev = rec.Samples[0].ReceivedNs
	}
	class, words := "hole", "not sampled"
	for k := range rec.Samples {
		t := rec.Samples[k].ReceivedNs
		if rec.MaxGapNs > 0 && t-prev > rec.MaxGapNs {
			// The last word holds for one period, which is what it was taken for; then nothing is known.
			add(prev, prev+rec.PeriodNs, class, words)
			add(prev+rec.PeriodNs, t, "hole", "not sampled")
		} else {
			add(prev, t, class, words)
		}
		class, words = State(rec, k, w)
		prev = t
	}
	add(prev, min(s.to, prev+rec.PeriodNs), class, words)
	return out
}

// thinning is which of the successful requests are drawn: every n-th.
func thinning(rec *record.Record) int { return 1 + len(rec.Requests)/maxTicks }

// requestTicks are the ends of a worker's requests, by outcome, under its lane.
func requestTicks(rec *record.Record, s scale, zero int64, w string, y float64, keep int) []point {
	var out []point
	for i, q := range rec.Requests {
		mine := q.Worker == w || (w == "" && !slices.Contains(rec.Workers, q.Worker) && q.Outcome == load.OutcomeFailed)
		end := q.EndNs
		if q.Outcome == load.OutcomeOpen || end == 0 {
			end = s.to
		}
		if !mine || !s.has(end) || (q.Outcome == load.OutcomeOK && i%keep != 0) {
			continue
		}
		title := fmt.Sprintf("request %s/%d %s at %s", q.Load, q.N, q.Outcome, at(end, zero))
		if q.Error != "" {
			title += ": " + clip(q.Error, 120)
		}
		out = append(out, point{X: s.x(end), Y: y + laneHeight, Class: "req-" + q.Outcome, Title: title})
	}
	// Failures last, so that they lie on top.
	slices.SortStableFunc(out, func(a, b point) int { return rankOf(a) - rankOf(b) })
	return out
}

// attemptTicks are the attempts that a worker's port refused or broke, also those that a retry hid from the
// client: the traffic that a gateway wasted on it.
func attemptTicks(rec *record.Record, s scale, zero int64, w string, y float64) []point {
	var out []point
	for _, l := range rec.Links {
		if l.Worker != w || l.Method == "GET" || l.EndNs == 0 || l.Outcome == "ok" || !s.has(l.EndNs) || len(out) >= maxTicks {
			continue
		}
		out = append(out, point{X: s.x(l.EndNs), Y: y + laneHeight, Class: "req-attempt",
			Title: fmt.Sprintf("attempt %d on %s: %s at %s", l.N, w, l.Outcome, at(l.EndNs, zero))})
	}
	return out
}

// rankOf draws what went wrong over what went well.
func rankOf(p point) int {
	if p.Class == "req-ok" {
		return 0
	}
	return 1
}

// clip shortens what came from outside, by characters and not bytes: half a character would be no text.
func clip(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n-1]) + "…"
}
