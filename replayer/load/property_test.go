package load

import (
	"context"
	"net/http"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// manners that end by themselves, and two that do not.
var manners = []string{"/stream", "/whole", "/400", "/clean-end", "/fin", "/rst-first", "/error-event", "/silent", "/stall"}

// Whatever is planned, whatever the server does, and however the load ends, every request that came due
// is in exactly one record, in order, with one outcome that fits what else the record says.
func TestEveryRequestHasOneRecord(t *testing.T) {
	server := newServer(t)
	client := NewClient(100)
	defer client.CloseIdleConnections()
	rapid.Check(t, func(rt *rapid.T) {
		var paths []string
		for range rapid.IntRange(0, 25).Draw(rt, "requests") {
			paths = append(paths, rapid.SampledFrom(manners).Draw(rt, "manner"))
		}
		planned := plan(paths...)
		o := Options{URL: server.URL, Load: "main", Requests: List(planned), Client: client,
			MaxOpen:      rapid.IntRange(1, 30).Draw(rt, "max open"),
			DrainTimeout: time.Duration(rapid.IntRange(1, 20).Draw(rt, "drain ms")) * time.Millisecond,
			Abort:        Abort{Share: rapid.SampledFrom([]float64{0, 0.5, 1}).Draw(rt, "abort"), Max: 3 * time.Millisecond},
			Concurrency:  rapid.SampledFrom([]int{0, 0, 3}).Draw(rt, "concurrency"),
		}
		run := Start(context.Background(), o)
		end := rapid.SampledFrom([]string{"wait", "stop", "cancel"}).Draw(rt, "end")
		// The closed loop waits for requests that never end: somebody has to end it.
		if o.Concurrency > 0 && end == "wait" {
			end = "cancel"
		}
		after := rapid.IntRange(0, len(planned)).Draw(rt, "ended after records")
		if end != "wait" {
			for deadline := time.Now().Add(20 * time.Millisecond); len(run.Snapshot()) < after && time.Now().Before(deadline); {
				time.Sleep(100 * time.Microsecond)
			}
		}
		switch end {
		case "stop":
			run.Stop()
		case "cancel":
			run.Cancel()
		}
		check(rt, planned, run.Wait(), run, end)
	})
}

func check(t *rapid.T, planned []Request, records []Record, run *Run, end string) {
	if len(records) > len(planned) || end == "wait" && len(records) != len(planned) {
		t.Fatalf("%d records of %d planned requests", len(records), len(planned))
	}
	refused := 0
	for i, r := range records {
		if r.N != i || r.ID != planned[i].ID || r.Load != "main" {
			t.Fatalf("record %d is %d, %s of %s", i, r.N, r.ID, r.Load)
		}
		if run.o.Concurrency == 0 && r.ScheduledNs != run.StartNs()+planned[i].OffsetNs {
			t.Fatalf("record %d scheduled at %d", i, r.ScheduledNs-run.StartNs())
		}
		switch {
		case r.Outcome == OutcomeOK && (r.Error != "" || r.Status != http.StatusOK || r.FirstNs == 0),
			r.Outcome == OutcomeFailed && r.Error == "",
			r.Outcome == OutcomeAborted && (r.Error != "" || run.o.Abort.Share == 0),
			r.Outcome == OutcomeOpen && r.EndNs != 0,
			r.Outcome != OutcomeOpen && r.EndNs == 0:
			t.Fatalf("%s: %+v", planned[i].Path, r)
		}
		if r.SentNs == 0 && r.Outcome == OutcomeFailed {
			refused++
		}
	}
	if refused != run.Refused() {
		t.Fatalf("%d records of requests not sent, %d refused", refused, run.Refused())
	}
	s := Summarize(records, 0)
	if s.OK+s.Failed+s.Aborted+s.Open != len(records) {
		t.Fatalf("outcomes do not add up: %+v", s)
	}
}
