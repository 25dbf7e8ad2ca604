package record

import (
	"bytes"
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

// TestReadErrors: a damaged run folder says what is wrong in which line of which file.
func TestReadErrors(t *testing.T) {
	sound := func() *Record {
		return &Record{Workers: []string{"w1"}, PeriodNs: 1e8, MaxGapNs: 3e8, Marks: []Mark{{"a", Interval{1, 2}}, {"b", Interval{3, 4}}},
			Samples: []Sample{{SentNs: 1, ReceivedNs: 2}, {SentNs: 3, ReceivedNs: 4}}}
	}
	for _, c := range []struct {
		name   string
		record func(*Record)
		file   string // overwritten with text, removed when text is "-"
		text   string
		want   string
	}{
		{"no head", nil, HeadFile, "-", "record.json: the file is missing"},
		{"no samples", nil, SamplesFile, "-", "samples.jsonl: the file is missing"},
		{"head cut short", nil, HeadFile, "{\n\"drill\": \"x\",\n", "record.json:3: unexpected end of JSON input"},
		{"head of another kind", nil, HeadFile, "{\n\"drill\": 5}\n", "record.json:2: "},
		{"broken line", nil, MarksFile, "{\"name\":\"a\"}\n{broken\n", "marks.jsonl:2: invalid character"},
		{"last line cut short", nil, RequestsFile, "{}\n{}\n{\"n\":", "requests.jsonl:3: unexpected end"},
		{"a line too long", nil, GatesFile, "{}\n" + strings.Repeat("x", maxLine+1), "gates.jsonl:2: bufio.Scanner: token too long"},
		{"no workers", func(r *Record) { r.Workers = nil }, "", "", "record.json: it names no workers"},
		{"no period", func(r *Record) { r.PeriodNs = 0 }, "", "", "record.json: period_ns 0"},
		{"a mark that ends before it begins", func(r *Record) { r.Marks[1].Lo = 9 }, "", "", "marks.jsonl:2: "},
		{"received before sent", func(r *Record) { r.Samples[0].SentNs = 3 }, "", "", "samples.jsonl:1: "},
		{"samples out of order", func(r *Record) { r.Samples[1] = r.Samples[0]; r.Samples[1].ReceivedNs = 1; r.Samples[1].SentNs = 0 }, "", "", "samples.jsonl:2: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, r := t.TempDir(), sound()
			if c.record != nil {
				c.record(r)
			}
			if err := Write(dir, r); err != nil {
				t.Fatal(err)
			}
			if c.text == "-" {
				if err := os.Remove(filepath.Join(dir, c.file)); err != nil {
					t.Fatal(err)
				}
			} else if c.file != "" {
				if err := os.WriteFile(filepath.Join(dir, c.file), []byte(c.text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := Read(dir); err == nil || !strings.Contains(err.Error(), dir+"/"+c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

// FuzzDecodeLines: whatever stands in a line file, reading it gives rows or an error that names the line.
func FuzzDecodeLines(f *testing.F) {
	f.Add([]byte("{\"k\":1,\"sent_ns\":5,\"received_ns\":6,\"values\":{\"routable(w1)\":1}}\n"))
	f.Add([]byte("\n"))
	f.Add([]byte("{\"k\":1e400}\nnull\n[]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		rows, err := decodeLines[Sample](bytes.NewReader(text), "samples.jsonl")
		if err != nil && !strings.HasPrefix(err.Error(), "samples.jsonl:") {
			t.Errorf("error %v names no line", err)
		}
		if lines := bytes.Count(text, []byte{'\n'}) + 1; len(rows) > lines {
			t.Errorf("%d rows from %d lines", len(rows), lines)
		}
	})
}
