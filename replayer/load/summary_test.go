package load

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const ms = int64(time.Millisecond)

// clean are n requests 10 ms apart, each sent lag late, its first token after 100 ms, two gaps of 20 ms,
// its end after 150 ms.
func clean(n int, lag int64) (out []Record) {
	for i := range n {
		at := 1_000_000*ms + int64(i)*10*ms
		out = append(out, Record{N: i, ScheduledNs: at, SentNs: at + lag, FirstNs: at + 100*ms, EndNs: at + 150*ms,
			GapsNs: []int64{20 * ms, 20 * ms}, Outcome: OutcomeOK})
	}
	return out
}

func TestSummaryOfACleanLoad(t *testing.T) {
	s := Summarize(clean(100, ms), 1000*ms)
	at := func(n int64, v float64) Quantiles { return Quantiles{n, v, v, v, v, v, v} }
	want := Summary{Offered: 100, Achieved: 100, OfferedRate: 100, AchievedRate: 100, OK: 100, Errors: map[string]int{},
		SendLag: at(100, 1), TTFT: at(100, 100), Latency: at(100, 150), Gap: at(200, 20), Valid: true, Reasons: []string{}}
	// The histogram keeps three significant digits.
	close := cmp.Comparer(func(a, b float64) bool { return a-b < 0.001*b+1e-9 && b-a < 0.001*b+1e-9 })
	if d := cmp.Diff(want, s, close); d != "" {
		t.Error(d)
	}
}

func TestSummaryCountsEveryOutcome(t *testing.T) {
	r := clean(6, 0)
	r[0].Outcome, r[0].Error = OutcomeFailed, "status 503: no worker"
	r[1].Outcome, r[1].Error, r[1].SentNs, r[1].FirstNs = OutcomeFailed, "status 503: no worker", 0, 0
	r[2].Outcome = OutcomeAborted
	r[3].Outcome, r[3].EndNs, r[3].FirstNs, r[3].GapsNs = OutcomeOpen, 0, 0, nil
	s := Summarize(r, 60*ms)
	got := fmt.Sprint(s.Offered, s.Achieved, s.OK, s.Failed, s.Aborted, s.Open, s.Errors, s.SendLag.N, s.TTFT.N, s.Latency.N, s.Gap.N)
	if want := "6 5 2 2 1 1 map[status 503: no worker:2] 5 4 2 10"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestValidity(t *testing.T) {
	late := func(share int, by int64) []Record {
		r := clean(1000, ms)
		for i := range share {
			r[i].SentNs = r[i].ScheduledNs + by
		}
		return r
	}
	unsent := func(n int) []Record {
		r := clean(1000, ms)
		for i := range n {
			r[i].SentNs, r[i].Outcome, r[i].Error = 0, OutcomeFailed, "not sent"
		}
		return r
	}
	for _, c := range []struct {
		what    string
		records []Record
		window  int64
		want    []string
	}{
		{"on time", clean(1000, ms), 10_000 * ms, []string{}},
		{"on time, window from the records", clean(1000, ms), 0, []string{}},
		{"the last ones a little late", clean(3, 9*ms), 30 * ms, []string{}},
		{"nine in a thousand late", late(9, 50*ms), 10_000 * ms, []string{}},
		{"eleven in a thousand late", late(11, 50*ms), 10_000 * ms, []string{"send lag p99 50.0 ms, want at most 10 ms"}},
		{"ten in a thousand not sent", unsent(10), 10_000 * ms, []string{}},
		{"eleven in a thousand not sent", unsent(11), 10_000 * ms, []string{"achieved 989 of 1000 offered requests, want at least 99 %"}},
		{"half of them after the window", clean(1000, ms), 5_000 * ms, []string{"achieved 501 of 1000 offered requests, want at least 99 %"}},
		{"nothing", nil, 1000 * ms, []string{"no request was offered"}},
	} {
		s := Summarize(c.records, c.window)
		if d := cmp.Diff(c.want, s.Reasons); d != "" || s.Valid != (len(c.want) == 0) {
			t.Errorf("%s: valid %v\n%s", c.what, s.Valid, d)
		}
	}
}
