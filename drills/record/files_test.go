package record

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fleetdrill/replayer/load"
)

// TestWriteRead: a record comes back as it was written, every list included.
func TestWriteRead(t *testing.T) {
	dir := t.TempDir()
	want := &Record{
		Drill: "engine-killed", Seed: 1 << 63, Workers: []string{"w1", "w2"}, PeriodNs: 1e8, MaxGapNs: 3e8,
		Targets:  map[string]string{"death": "w2"},
		Marks:    []Mark{{"death.effective", Interval{10, 20}}},
		Samples:  []Sample{{K: 1, SentNs: 5, ReceivedNs: 6, Values: map[string]float64{"routable(w1)": 1}, Text: map[string]string{"veto(w1)": "none"}, Absent: []string{"epoch(w2)"}, LagNs: 7}},
		Requests: []load.Record{{N: 3, Load: "main", Worker: "w1", Outcome: load.OutcomeOK, GapsNs: []int64{1, 2}}},
		Links:    []Link{{Worker: "w1", N: 1, StartNs: 3, Method: "POST", Path: "/v1/completions", Outcome: "open"}},
		Faults:   []Fault{{ID: "death", Kind: "kill", Target: "w2", Confirmed: true, Evidence: []Evidence{{12, "exit seen"}}}},
		Gates:    []Gate{{"steady", true, "3.0 s"}},
	}
	if err := Write(dir, want); err != nil {
		t.Fatal(err)
	}
	got, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestReadErrors: a damaged run folder says which line of which file.
func TestReadErrors(t *testing.T) {
	dir := t.TempDir()
	if _, err := Read(dir); err == nil || !strings.Contains(err.Error(), HeadFile) {
		t.Errorf("no head: %v", err)
	}
	if err := Write(dir, &Record{Marks: []Mark{{"a", Interval{}}}}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, MarksFile), []byte("{}\n{broken\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(dir); err == nil || !strings.Contains(err.Error(), "line 2") || !strings.Contains(err.Error(), MarksFile) {
		t.Errorf("broken line: %v", err)
	}
}
