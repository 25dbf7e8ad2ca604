package report

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"

	"fleetdrill/drills/record"
	"fleetdrill/replayer/load"
)

// FailureGroup is the requests that did not end well in one way: one worker, one outcome, one status, and
// one error but for the numbers in it. FirstS and LastS are when they ended, in seconds from the run's
// origin; open requests have not, and count from when they were due.
type FailureGroup struct {
	Worker  string  `json:"worker"`
	Outcome string  `json:"outcome"`
	Status  int     `json:"status"`
	Count   int     `json:"count"`
	FirstS  float64 `json:"first_s"`
	LastS   float64 `json:"last_s"`
	// Example is the error of the first of them, Request its id.
	Example string `json:"example,omitempty"`
	Request string `json:"request"`
}

// numbers are what makes errors of one kind differ: ports, ids, times.
var numbers = regexp.MustCompile(`\d+`)

// failures groups the requests that failed, were aborted or never ended; the largest group comes first.
func failures(rec *record.Record, zero int64) []FailureGroup {
	type key struct {
		worker, outcome, error string
		status                 int
	}
	groups := map[key]*FailureGroup{}
	out := []FailureGroup{}
	var order []key
	for _, q := range rec.Requests {
		if q.Outcome == load.OutcomeOK {
			continue
		}
		// A request that never ended has no end to be placed at.
		end := q.EndNs
		if end == 0 {
			end = q.ScheduledNs
		}
		at := float64(end-zero) / 1e9
		k := key{q.Worker, q.Outcome, numbers.ReplaceAllString(q.Error, "#"), q.Status}
		g := groups[k]
		if g == nil {
			g = &FailureGroup{Worker: q.Worker, Outcome: q.Outcome, Status: q.Status, FirstS: at, LastS: at, Example: q.Error, Request: q.ID}
			groups[k] = g
			order = append(order, k)
		}
		g.Count++
		g.FirstS, g.LastS = min(g.FirstS, at), max(g.LastS, at)
	}
	// Groups of one size stay in the order in which they first failed: the first failure is the one to read.
	for _, k := range order {
		out = append(out, *groups[k])
	}
	slices.SortStableFunc(out, func(a, b FailureGroup) int { return cmp.Compare(b.Count, a.Count) })
	return out
}

// String is the group on one line.
func (g FailureGroup) String() string {
	worker := g.Worker
	if worker == "" {
		worker = "no worker"
	}
	when := fmt.Sprintf("at %+.3f s", g.FirstS)
	if g.Count > 1 {
		when = fmt.Sprintf("between %+.3f and %+.3f s", g.FirstS, g.LastS)
	}
	s := fmt.Sprintf("%d %s on %s, status %d, %s, first %s", g.Count, g.Outcome, worker, g.Status, when, g.Request)
	return s + orEmpty(": ", g.Example)
}
