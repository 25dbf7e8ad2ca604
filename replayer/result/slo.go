package result

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// SLO is what a request must keep to count as good. A bound of 0 is not stated.
type SLO struct {
	// TTFT bounds the time from the scheduled instant to the first token.
	TTFT time.Duration
	// ITL bounds the mean gap between a request's tokens; the strict reading bounds their 99th percentile.
	// An answer of one token has no gaps and keeps it.
	ITL time.Duration
}

// DefaultSLO is the one that published figures use.
func DefaultSLO() SLO { return SLO{TTFT: 500 * time.Millisecond, ITL: 50 * time.Millisecond} }

// ParseSLO reads "ttft=500ms,itl=50ms", in any order; what is left out is not stated.
func ParseSLO(s string) (SLO, error) {
	var o SLO
	for _, part := range strings.Split(s, ",") {
		name, value, _ := strings.Cut(part, "=")
		d, err := time.ParseDuration(value)
		if err != nil || d <= 0 {
			return SLO{}, fmt.Errorf("slo %q: %q: want a duration above zero, such as ttft=500ms", s, part)
		}
		switch name {
		case "ttft":
			o.TTFT = d
		case "itl":
			o.ITL = d
		default:
			return SLO{}, fmt.Errorf("slo %q: %q: want ttft or itl", s, name)
		}
	}
	return o, nil
}

// String is the form that ParseSLO reads.
func (o SLO) String() string {
	var parts []string
	if o.TTFT > 0 {
		parts = append(parts, "ttft="+o.TTFT.String())
	}
	if o.ITL > 0 {
		parts = append(parts, "itl="+o.ITL.String())
	}
	return strings.Join(parts, ",")
}

// MarshalJSON writes the bounds in ms.
func (o SLO) MarshalJSON() ([]byte, error) {
	ms := func(d time.Duration) float64 { return float64(d) / 1e6 }
	return json.Marshal(struct {
		TTFT float64 `json:"ttft_ms"`
		ITL  float64 `json:"itl_ms"`
	}{ms(o.TTFT), ms(o.ITL)})
}

// Kept says whether a request finished within the bounds, by the mean of its gaps and by their p99.
func (o SLO) Kept(r *Request) (mean, strict bool) {
	if r.Outcome != OK || o.TTFT > 0 && (r.TTFTNs == 0 || r.TTFTNs > int64(o.TTFT)) {
		return false, false
	}
	if o.ITL == 0 || len(r.GapsNs) == 0 {
		return true, true
	}
	return r.MeanGapNs() <= float64(o.ITL), p99(r.GapsNs) <= int64(o.ITL)
}

// p99 is the element at round(0.99 (n-1)) of the sorted values.
func p99(values []int64) int64 {
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	return sorted[((len(sorted)-1)*99+50)/100]
}
