package report

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"fleetdrill/drills/record"
)

// maxPage bounds what a short record may grow into, in bytes; the synthetic run's page has 90 KB.
const maxPage = 1 << 20

// TestEditedRecords: a folder that was edited by hand, with marks anywhere and values gone, is judged and
// drawn or refused, and never more than a page.
func TestEditedRecords(t *testing.T) {
	instant := rapid.OneOf(rapid.Int64(), rapid.Int64Range(start-10*second, start+20*second))
	rapid.Check(t, func(rt *rapid.T) {
		rec := synthetic(2100*ms, true)
		rec.Requests, rec.Links = rec.Requests[:20], rec.Links[:20] // enough to draw; the rest only costs time
		for i := range rec.Marks {
			if rapid.IntRange(0, 3).Draw(rt, "edit mark") == 0 {
				a, b := instant.Draw(rt, "a"), instant.Draw(rt, "b")
				rec.Marks[i].Interval = record.Interval{Lo: min(a, b), Hi: max(a, b)}
			}
		}
		from := rapid.IntRange(0, len(rec.Samples)).Draw(rt, "first sample")
		rec.Samples = rec.Samples[from:rapid.IntRange(from, len(rec.Samples)).Draw(rt, "last sample")]
		for i := range rec.Samples {
			switch rapid.IntRange(0, 9).Draw(rt, "edit sample") {
			case 0:
				rec.Samples[i].Values = nil
			case 1:
				rec.Samples[i].Text = nil
			}
		}
		if rapid.Bool().Draw(rt, "no requests") {
			rec.Requests, rec.Links = nil, nil
		}
		r := run(t, rec)
		var page bytes.Buffer
		if err := writeHTML(&page, r, layOut(r)); err != nil {
			rt.Fatal(err)
		}
		if page.Len() > maxPage {
			rt.Fatalf("the page has %d bytes", page.Len())
		}
		if Inspect(r).Text() == "" {
			rt.Fatal("nothing was told")
		}
	})
}
