package compare

import (
	"math"
	"slices"

	"fleetdrill/replayer/load"
)

// Figure is one number of both runs that no expectation need have asked for. A value is nil when the run
// had too few requests for it.
type Figure struct {
	Name string   `json:"name"`
	Unit string   `json:"unit"`
	A    *float64 `json:"a"`
	B    *float64 `json:"b"`
}

// Least numbers of requests behind a quantile: the judge's own, below which it says unknown.
const (
	leastP50 = 20
	leastP99 = 100
)

// figures are of requests that were not surely over at the origin, over the stretch that both runs have: those
// that the fault cut belong to what followed, and a longer run must not look worse for having gone on.
func figures(a, b side) []Figure {
	// The end of the shorter run is where both stop counting.
	common := min(a.lasts(), b.lasts())
	fa, fb := a.requests(common), b.requests(common)
	count := func(keep func(load.Record) bool) func([]load.Record) *float64 {
		return func(rs []load.Record) *float64 {
			n := 0.0
			for _, r := range rs {
				if keep(r) {
					n++
				}
			}
			return &n
		}
	}
	ttft := func(q float64, least int) func([]load.Record) *float64 {
		return func(rs []load.Record) *float64 { return quantile(rs, q, least) }
	}
	var out []Figure
	for _, f := range []struct {
		name, unit string
		of         func([]load.Record) *float64
	}{
		{"requests", "", count(func(load.Record) bool { return true })},
		{"failed", "", count(func(r load.Record) bool { return r.Outcome == load.OutcomeFailed })},
		{"retried", "", count(func(r load.Record) bool { return r.Attempts > 1 })},
		{"TTFT p50", "s", ttft(0.5, leastP50)},
		{"TTFT p99", "s", ttft(0.99, leastP99)},
	} {
		out = append(out, Figure{f.name, f.unit, f.of(fa), f.of(fb)})
	}
	return out
}

// lasts is how long a run was watched after its origin, in nanoseconds.
func (s side) lasts() int64 {
	n := len(s.Record.Samples)
	if n == 0 {
		return 0
	}
	return s.Record.Samples[n-1].ReceivedNs - s.zero
}

// requests are those in flight at the origin or due within so many nanoseconds of it.
func (s side) requests(within int64) []load.Record {
	var out []load.Record
	for _, r := range s.Record.Requests {
		if (r.EndNs == 0 || r.EndNs >= s.earliest) && r.ScheduledNs <= s.zero+within {
			out = append(out, r)
		}
	}
	return out
}

// quantile is the nearest-rank quantile of times to first token, in seconds.
func quantile(rs []load.Record, q float64, least int) *float64 {
	var vs []float64
	for _, r := range rs {
		if r.FirstNs != 0 {
			vs = append(vs, float64(r.FirstNs-r.ScheduledNs)/1e9)
		}
	}
	// A p99 of thirty requests is their maximum under another name.
	if len(vs) < least {
		return nil
	}
	slices.Sort(vs)
	return &vs[max(0, int(math.Ceil(q*float64(len(vs))))-1)]
}
