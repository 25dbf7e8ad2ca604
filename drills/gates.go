package drills

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"fleetdrill/drills/record"
	"fleetdrill/replayer/load"
)

// maxSamplerLag is the p99 lag of the sampler's slots above which a run says more about the machine than
// about the gateway.
const maxSamplerLag = 50 * time.Millisecond

// minCredited is the share of steady requests that must have had a predicted credit, or the index was
// not in use.
const minCredited = 0.2

// generatorGate says whether the loads kept their schedule.
func generatorGate(requests []load.Record) record.Gate {
	g := record.Gate{Name: "generator"}
	if len(requests) == 0 {
		g.Detail = "no request was sent"
		return g
	}
	first, last := requests[0].ScheduledNs, requests[0].ScheduledNs
	for _, q := range requests {
		first, last = min(first, q.ScheduledNs), max(last, q.ScheduledNs)
	}
	s := load.Summarize(requests, last-first)
	g.OK = s.Valid
	g.Detail = fmt.Sprintf("send lag p99 %.2f ms, %d of %d sent", s.SendLag.P99, s.Achieved, s.Offered)
	if !s.Valid {
		g.Detail += ": " + strings.Join(s.Reasons, "; ")
	}
	return g
}

// samplerGate says whether routing state was read on time.
func samplerGate(samples []record.Sample) record.Gate {
	g := record.Gate{Name: "sampler"}
	if len(samples) == 0 {
		g.Detail = "no sample was taken"
		return g
	}
	lags := make([]int64, len(samples))
	for i, s := range samples {
		lags[i] = s.LagNs
	}
	slices.Sort(lags)
	p99 := time.Duration(lags[len(lags)*99/100])
	g.OK = p99 <= maxSamplerLag
	g.Detail = fmt.Sprintf("%d samples, lag p99 %v, bound %v", len(samples), p99.Round(10*time.Microsecond), maxSamplerLag)
	return g
}

// indexGate says whether the gateway's index was in use during the steady phase: a drill whose requests
// are all misses passes on any gateway that has no index at all.
func indexGate(rec *record.Record) record.Gate {
	g := record.Gate{Name: "index used"}
	var from, to int64
	for _, m := range rec.Marks {
		switch m.Name {
		case "steady.start":
			from = m.Lo
		case "steady.end":
			to = m.Hi
		}
	}
	var all, credited int
	for _, q := range rec.Requests {
		// A request straight to an engine has no prediction (-1), and says nothing about the index.
		if q.ScheduledNs < from || q.ScheduledNs > to || q.Outcome != load.OutcomeOK || q.Predicted < 0 {
			continue
		}
		all++
		if q.Predicted > 0 {
			credited++
		}
	}
	lookups := counterRise(rec.Samples, "lookups")
	g.OK = all > 0 && lookups > 0 && float64(credited) >= minCredited*float64(all)
	g.Detail = fmt.Sprintf("%d of %d steady requests had a predicted credit, %.0f lookups", credited, all, lookups)
	return g
}

// counterRise is how far a counter rose from its first sample to its last.
func counterRise(samples []record.Sample, key string) float64 {
	var first, last float64
	seen := false
	for _, s := range samples {
		v, ok := s.Values[key]
		if !ok {
			continue
		}
		if !seen {
			first, seen = v, true
		}
		last = v
	}
	return last - first
}
