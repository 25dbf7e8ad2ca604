package compare

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"fleetdrill/drills/judge"
	"fleetdrill/drills/report"
	"fleetdrill/drills/report/pagetest"
)

// TestDiffGolden: two runs of one drill with other victims, as text, as JSON and as a page.
func TestDiffGolden(t *testing.T) {
	d := Of(stored(t, "prompt", 7), stored(t, "late", 8))
	golden(t, "diff.txt", d.Text())
	raw, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "diff.json", string(raw)+"\n")
	html, err := d.HTML()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "diff.html", string(html))
}

// TestDiffPageInABrowser: the page as a reader sees it.
func TestDiffPageInABrowser(t *testing.T) {
	html, err := Of(stored(t, "prompt", 7), stored(t, "late", 8)).HTML()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "diff.html")
	if err := os.WriteFile(path, html, 0o644); err != nil {
		t.Fatal(err)
	}
	pagetest.Check(t, pagetest.Start(t), path, 80, pagetest.Everyone())
}

// TestDiffOfARunWithItself: nothing differs, whatever is compared.
func TestDiffOfARunWithItself(t *testing.T) {
	r := stored(t, "prompt", 7)
	d := Of(r, r)
	if len(d.Notes) != 0 {
		t.Errorf("notes: %q", d.Notes)
	}
	for _, p := range d.Expectations {
		if p.Relation == Apart || p.Relation == Different || p.Reworded {
			t.Errorf("%s: %s, reworded %v", p.ID, p.Relation, p.Reworded)
		}
	}
	for _, m := range d.Marks {
		if m.Later() != "0" {
			t.Errorf("%s came %s later", m.Name, m.Later())
		}
	}
	for _, f := range d.Figures {
		if f.A == nil || *f.A != *f.B {
			t.Errorf("%s: %v and %v", f.Name, f.A, f.B)
		}
	}
}

// TestDiffOfStrangers: other drills, fleets and periods are said and drawn, not refused; so is a run that
// ended before its first sample.
func TestDiffOfStrangers(t *testing.T) {
	a, b := stored(t, "prompt", 7), stored(t, "late", 8)
	b.Record.Drill, b.Record.Workers, b.Record.PeriodNs, b.Version, a.Version = "other", []string{"w1", "w9"}, 5e7, "2", "1"
	b.Drill.Verdict, b.Drill.Reason = judge.Invalid, "steady never came"
	b.Record.Samples, b.Record.Marks, b.Record.Requests, b.Record.Faults = nil, nil, nil, nil
	b.Drill.Expectations = b.Drill.Expectations[1:]
	b.Drill.Expectations[0].ID = "only-in-b"
	d := Of(a, b)
	golden(t, "strangers.txt", d.Text())
	if _, err := d.HTML(); err != nil {
		t.Fatal(err)
	}
	empty := report.Run{Record: b.Record, Drill: b.Drill}
	if _, err := Of(empty, empty).HTML(); err != nil {
		t.Fatal(err)
	}
}

// TestPath: a step line holds a value until the next is known, breaks where nothing is, and ends where the
// axis does.
func TestPath(t *testing.T) {
	ax := axis{0, 10}
	nan := math.NaN()
	for _, c := range []struct {
		name string
		dots []dot
		want string
	}{
		{"nothing", nil, ""},
		{"never known", []dot{{1, nan}, {2, nan}}, ""},
		{"steady", []dot{{0, 1}, {5, 1}, {10, 1}}, "M168 0H1062"},
		{"a step", []dot{{0, 1}, {5, 0}, {10, 0}}, "M168 0H615V46H1062"},
		{"a break", []dot{{0, 1}, {2, 1}, {4, nan}, {6, 1}, {8, 1}}, "M168 0H525.6M704.4 0H883.2"},
		{"beyond the axis", []dot{{-1, 0}, {0, 1}, {9, 1}, {11, 0}}, "M168 0H972.6"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := path(ax, c.dots, 0, 1); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
