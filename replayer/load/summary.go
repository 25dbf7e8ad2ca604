package load

import (
	"fmt"
	"time"
)

// Bounds of a valid load; beyond them the figures say more about the generator than about the gateway.
const (
	// MaxSendLag bounds the 99th percentile of actual minus scheduled send.
	MaxSendLag = 10 * time.Millisecond
	// MinAchieved is the share of the offered requests that must have been sent in time.
	MinAchieved = 0.99
)

// Summary is what a load came to. Durations of requests count from the scheduled instant.
type Summary struct {
	// Offered requests were scheduled, Achieved of them left within the window. The rates are per second
	// of the window.
	Offered      int     `json:"offered"`
	Achieved     int     `json:"achieved"`
	OfferedRate  float64 `json:"offered_rps"`
	AchievedRate float64 `json:"achieved_rps"`

	OK      int `json:"ok"`
	Failed  int `json:"failed"`
	Aborted int `json:"aborted"`
	Open    int `json:"open"`
	// Errors counts the failed requests by error text.
	Errors map[string]int `json:"errors"`

	SendLag Quantiles `json:"send_lag_ms"` // actual minus scheduled send, of every request that left
	TTFT    Quantiles `json:"ttft_ms"`     // scheduled to first token, of every request that had one
	Latency Quantiles `json:"latency_ms"`  // scheduled to end, of ok requests
	Gap     Quantiles `json:"gap_ms"`      // pauses between token chunks, pooled

	// Valid says that the generator kept its schedule; Reasons say where it did not.
	Valid   bool     `json:"valid"`
	Reasons []string `json:"reasons"`
}

// Summarize condenses the records of a load whose scheduled window was windowNs long (0: from the first
// to the last scheduled instant).
func Summarize(records []Record, windowNs int64) Summary {
	s := Summary{Offered: len(records), Errors: map[string]int{}, Reasons: []string{}}
	first, last := window(records)
	if windowNs == 0 {
		windowNs = last - first
	}
	lag, ttft, latency, gap := NewHistogram(), NewHistogram(), NewHistogram(), NewHistogram()
	for i := range records {
		r := &records[i]
		s.count(r)
		if r.SentNs != 0 {
			lag.Add(r.SentNs - r.ScheduledNs)
			// The last request of a window may be as late as any other.
			if r.SentNs <= first+windowNs+int64(MaxSendLag) {
				s.Achieved++
			}
		}
		if r.FirstNs != 0 {
			ttft.Add(r.FirstNs - r.ScheduledNs)
		}
		if r.Outcome == OutcomeOK {
			latency.Add(r.EndNs - r.ScheduledNs)
		}
		for _, g := range r.GapsNs {
			gap.Add(g)
		}
	}
	s.SendLag, s.TTFT, s.Latency, s.Gap = lag.Quantiles(), ttft.Quantiles(), latency.Quantiles(), gap.Quantiles()
	if windowNs > 0 {
		s.OfferedRate = float64(s.Offered) * 1e9 / float64(windowNs)
		s.AchievedRate = float64(s.Achieved) * 1e9 / float64(windowNs)
	}
	s.judge()
	return s
}

// window is the first and the last scheduled instant.
func window(records []Record) (first, last int64) {
	for i := range records {
		at := records[i].ScheduledNs
		if i == 0 || at < first {
			first = at
		}
		last = max(last, at)
	}
	return first, last
}

func (s *Summary) count(r *Record) {
	switch r.Outcome {
	case OutcomeOK:
		s.OK++
	case OutcomeFailed:
		s.Failed++
		s.Errors[r.Error]++
	case OutcomeAborted:
		s.Aborted++
	default:
		s.Open++
	}
}

// judge applies the bounds of a valid load.
func (s *Summary) judge() {
	bound := float64(MaxSendLag) / 1e6
	switch {
	case s.Offered == 0:
		s.Reasons = append(s.Reasons, "no request was offered")
	case float64(s.Achieved) < MinAchieved*float64(s.Offered):
		s.Reasons = append(s.Reasons, fmt.Sprintf("achieved %d of %d offered requests, want at least %.0f %%", s.Achieved, s.Offered, MinAchieved*100))
	}
	if s.SendLag.P99 > bound {
		s.Reasons = append(s.Reasons, fmt.Sprintf("send lag p99 %.1f ms, want at most %.0f ms", s.SendLag.P99, bound))
	}
	s.Valid = len(s.Reasons) == 0
}
