package bench

import (
	"fmt"

	"fleetdrill/gateway/index/kinds"
)

// Figure is one of ours beside a published one.
type Figure struct {
	Name string  `json:"name"`
	Here float64 `json:"here"`
	Unit string  `json:"unit"`
	// Published is others' figure, as text: it often names several indexes.
	Published string  `json:"published"`
	Bar       float64 `json:"bar"`
	Goal      float64 `json:"goal"`
	// More says that a larger figure is better.
	More bool `json:"more"`
}

// Verdict says what was reached.
func (f Figure) Verdict() string {
	reaches := func(want float64) bool { return f.More && f.Here >= want || !f.More && f.Here <= want }
	switch {
	case reaches(f.Goal):
		return "goal"
	case reaches(f.Bar):
		return "bar"
	}
	return "missed"
}

func (f Figure) text(v float64) string { return fmt.Sprintf("%.4g%s", v, f.Unit) }

// published holds the chain index of a report against the published figures, per lane core. The published
// ones are of 52 and 59 lane cores of another machine: chain, CRTC and positional index in Rust.
func published(r *IndexReport) (out []Figure) {
	for i := range r.Rows {
		row := &r.Rows[i]
		if row.Index != kinds.Chain {
			continue
		}
		// Without an overload nobody looked for the highest rate: one rate was asked for.
		if row.Sustained > 0 || row.Capacity > 0 {
			out = append(out, Figure{"sustained per lane core", row.Sustained / float64(row.Lanes) / 1e6, " M/s", "12.6-23.4 / 9.2-15.5 / 2.5", 8, 20, true})
		}
		out = append(out,
			Figure{"lookup p50 at that load", row.Lookup.P50, " us", "1.3 / 3.3 / 27", 3, 1.3, false},
			Figure{"lookup p99 at that load", row.Lookup.P99, " us", "4 / 14 / 413", 15, 4, false},
			Figure{"bytes per membership", row.BytesPerMembership, " B", "60 / 887 / 334", 80, 55, false})
	}
	if len(out) == 0 || r.Rows[0].Index != kinds.Chain {
		return out
	}
	for _, c := range r.Comparisons {
		switch c.Over {
		case "crtc":
			out = append(out, Figure{"sustained over crtc", c.Sustained, "x", "1.37-1.50", 1.5, 2, true},
				Figure{"lookup p99 below crtc", c.P99, "x", "3.5", 3, 5, true}, Figure{"bytes below crtc", c.Bytes, "x", "14.8", 5, 15, true})
		case kinds.Positional:
			out = append(out, Figure{"sustained over positional", c.Sustained, "x", "5.0", 4, 6, true}, Figure{"lookup p99 below positional", c.P99, "x", "100", 20, 100, true})
		case kinds.MapTree:
			out = append(out, Figure{"sustained over maptree", c.Sustained, "x", "-", 3, 6, true})
		}
	}
	return out
}

// publishedDecisions are those of the chain index under the policy that was published.
func publishedDecisions(rows []DecisionRow) (out []Figure) {
	for i := range rows {
		switch row := &rows[i]; {
		case row.Index != kinds.Chain || row.Policy != "cache_aware":
		case row.Workers == 128:
			out = append(out, Figure{"decision p50, 128 workers", row.Us.P50, " us", "8.9 / - / 16.6", 9, 4, false},
				Figure{"decision p99, 128 workers", row.Us.P99, " us", "15.9 / - / 87.5", 16, 10, false})
		case row.Workers == 1024:
			out = append(out, Figure{"decision p99, 1,024 workers", row.Us.P99, " us", "35.6 / - / 170", 36, 20, false})
		}
	}
	return out
}

// publishedPeer are the figures of llm-d-kv-cache's index in memory, on a machine of this kind.
func publishedPeer(rows []PeerRow) (out []Figure) {
	for i := range rows {
		row := &rows[i]
		if row.Index != kinds.Chain {
			continue
		}
		all := row.Holders == "8 of 8"
		name := func(s string) string { return s + ", " + row.Holders }
		pick := func(a, b string) string {
			if all {
				return a
			}
			return b
		}
		bytes := [2]float64{80, 55}
		if !all {
			bytes = [2]float64{160, 110}
		}
		out = append(out,
			Figure{name("lookup and score p50"), row.Lookup.P50, " us", pick("1,300-1,500", "410-450"), 30, 5, false},
			Figure{name("lookup and score p99"), row.Lookup.P99, " us", pick("6,000-9,000", "1,100"), 100, 20, false},
			Figure{name("allocations per lookup"), row.Allocs, "", pick("21,037", "5,158"), 0, 0, false},
			Figure{name("beside a writer p99"), row.Beside.P99, " us", "26,000-31,000", 200, 50, false},
			Figure{name("adds"), row.Adds / 1e6, " M/s", pick("1.38-1.52", "0.5"), 5, 15, true},
			Figure{name("heap per membership"), row.HeapBytes, " B", pick("242", "1,152"), bytes[0], bytes[1], false},
			Figure{name("clear one holder"), row.ClearMs, " ms", "1,000-1,300", 50, 10, false})
	}
	return out
}
