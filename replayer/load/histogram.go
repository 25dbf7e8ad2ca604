package load

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Quantiles of a set of durations, in milliseconds with three significant digits; all 0 when N is 0.
type Quantiles struct {
	N    int64   `json:"n"`
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

// Histogram counts durations of 1 us to an hour with three significant digits.
type Histogram struct{ h *hdrhistogram.Histogram }

// NewHistogram is an empty histogram.
func NewHistogram() Histogram {
	return Histogram{hdrhistogram.New(1, int64(time.Hour/time.Microsecond), 3)}
}

// Add counts a duration in nanoseconds; one out of range counts at the end of the range.
func (h Histogram) Add(ns int64) {
	us := min(max(ns/1000, 0), int64(time.Hour/time.Microsecond))
	// The value is in range, so this cannot fail.
	_ = h.h.RecordValue(us)
}

// Quantiles are those of what was counted.
func (h Histogram) Quantiles() Quantiles {
	ms := func(q float64) float64 { return float64(h.h.ValueAtQuantile(q)) / 1000 }
	if h.h.TotalCount() == 0 {
		return Quantiles{}
	}
	return Quantiles{
		N: h.h.TotalCount(), Mean: h.h.Mean() / 1000,
		P50: ms(50), P90: ms(90), P99: ms(99), P999: ms(99.9), Max: float64(h.h.Max()) / 1000,
	}
}
