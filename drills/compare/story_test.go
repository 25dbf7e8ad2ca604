package compare

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fleetdrill/drills/judge"
	"fleetdrill/drills/record"
	"fleetdrill/drills/record/recordtest"
	"fleetdrill/drills/report"
	"fleetdrill/drills/scenario"
)

// stored writes a run folder from a story, judged by testdata/drill.yaml, and reads it back: what the
// comparisons see is what a folder holds. Twenty requests a second, steady in their times, are added to
// the story's own.
func stored(t *testing.T, story string, seed uint64) report.Run {
	t.Helper()
	script, err := os.ReadFile(filepath.Join("testdata", story+".story"))
	if err != nil {
		t.Fatal(err)
	}
	var steady strings.Builder
	for i := range 300 {
		fmt.Fprintf(&steady, "request %.2f w2 ttft=%.3f end=0.5\n", 2+float64(i)/20, 0.020+float64(i%7)/1000)
	}
	rec, err := recordtest.Parse(string(script) + steady.String())
	if err != nil {
		t.Fatal(err)
	}
	rec.Seed = seed
	text, err := os.ReadFile("testdata/drill.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s := rules(t, string(text))
	dir := filepath.Join(t.TempDir(), story)
	for _, step := range []func() error{
		func() error { return os.Mkdir(dir, 0o755) },
		func() error { return os.WriteFile(filepath.Join(dir, report.ScenarioFile), text, 0o644) },
		func() error { return record.Write(dir, rec) },
		func() error {
			return report.Write(dir, report.Run{Drill: judge.Judge(s, rec, judge.Options{}), Scenario: s, Record: rec})
		},
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	r, err := report.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	r.Drill.RunDir = "results/runs/story/" + story // the temporary folder is another one each time
	return r
}

func rules(t *testing.T, text string) *scenario.Scenario {
	t.Helper()
	s, err := scenario.Parse("drill.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// golden holds text to a file of testdata; REWRITE=1 accepts.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if os.Getenv("REWRITE") != "" {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != got {
		t.Errorf("%s differs; look at the change, then REWRITE=1. Got:\n%s", path, got)
	}
}
