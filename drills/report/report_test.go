package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"fleetdrill/drills/judge"
	"fleetdrill/drills/record"
)

// TestGolden holds every artefact of runs that pass, fail, have a hole and heal to its golden file; REWRITE=1 accepts.
func TestGolden(t *testing.T) {
	holed := synthetic(2100*ms, true)
	holed.Samples = slices.DeleteFunc(holed.Samples, func(s record.Sample) bool { return s.SentNs > kill+4*second && s.SentNs < kill+5*second })
	for name, rec := range map[string]*record.Record{"pass": synthetic(2100*ms, true), "fail": synthetic(0, false), "hole": holed, "healed": healed()} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			r := run(t, rec)
			if err := Write(dir, r); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "summary.txt"), []byte(Summary(r.Drill)), 0o644); err != nil {
				t.Fatal(err)
			}
			for _, f := range []string{"verdict.json", "junit.xml", "timeline.txt", "timeline.svg", "report.html", "summary.txt"} {
				golden(t, filepath.Join("testdata", name, f), filepath.Join(dir, f))
			}
		})
	}
}

func golden(t *testing.T, want, got string) {
	t.Helper()
	g, err := os.ReadFile(got)
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv("REWRITE") != "" {
		if err := os.MkdirAll(filepath.Dir(want), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(want, g, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	w, err := os.ReadFile(want)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(w, g) {
		t.Errorf("%s differs from its golden file; look at the change, then REWRITE=1", want)
	}
}

// TestStandsAlone: the page asks the network for nothing, and the pictures are well-formed XML.
func TestStandsAlone(t *testing.T) {
	r := run(t, synthetic(2100*ms, true))
	var page, svg bytes.Buffer
	p := layOut(r)
	if err := writeHTML(&page, r, p); err != nil {
		t.Fatal(err)
	}
	if err := writeSVG(&svg, p); err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(page.String(), `xmlns="http://www.w3.org/2000/svg"`, "")
	if m := regexp.MustCompile(`https?://|src=|<script|@import|<link`).FindString(text); m != "" {
		t.Errorf("the page holds %q", m)
	}
	dec := xml.NewDecoder(&svg)
	for {
		if _, err := dec.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("timeline.svg: %v", err)
		}
	}
}

// TestEscapes: text that came from outside stays text, in every artefact.
func TestEscapes(t *testing.T) {
	const evil = `"><script>alert(1)</script>&`
	rec := synthetic(2100*ms, true)
	rec.Workers[0] = evil
	rec.Marks = append(rec.Marks, record.Mark{Name: evil, Interval: record.Interval{Lo: kill + second, Hi: kill + second}})
	rec.Requests[100].Error = evil
	rec.Faults[0].Evidence[0].What = evil
	r := run(t, rec)
	r.Reproduce, r.Drill.Name, r.Drill.Reason, r.Drill.Expectations[0].Sentence = evil, evil, evil, evil
	dir := t.TempDir()
	if err := Write(dir, r); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"report.html", "timeline.svg", "junit.xml"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(b, []byte("<script")) {
			t.Errorf("%s lets markup through", name)
		}
	}
}

// TestVerdictKeys: the keys that machines rely on are in verdict.json.
func TestVerdictKeys(t *testing.T) {
	var b bytes.Buffer
	if err := writeVerdict(&b, run(t, synthetic(0, false)).Drill); err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{"name", "topology", "place", "target", "verdict", "runs", "passed", "wilson95_low", "run_dir", "seed", "expectations", "faults"} {
		if _, ok := got[k]; !ok {
			t.Errorf("no key %q", k)
		}
	}
	first := got["expectations"].([]any)[0].(map[string]any)
	for _, k := range []string{"id", "verdict", "value", "low", "high", "bound", "margin", "unit", "sentence"} {
		if _, ok := first[k]; !ok {
			t.Errorf("no key expectations[].%q", k)
		}
	}
}

// TestEmptyRecord: a run that ended before its first sample still gets a report.
func TestEmptyRecord(t *testing.T) {
	rec := &record.Record{Drill: "engine-killed", Workers: []string{"w1"}, PeriodNs: 100 * ms, MaxGapNs: 300 * ms}
	r := run(t, rec)
	if r.Drill.Verdict != judge.Invalid {
		t.Errorf("verdict %s", r.Drill.Verdict)
	}
	if err := Write(t.TempDir(), r); err != nil {
		t.Fatal(err)
	}
}

// TestJUnitErrors: a run that could not be judged is red, also when no expectation is.
func TestJUnitErrors(t *testing.T) {
	var b bytes.Buffer
	d := judge.Drill{Name: "x", Verdict: judge.Invalid, Reason: "gate steady: not reached", Expectations: []judge.Result{
		{ID: "a", Verdict: judge.Pass}, {ID: "b", Verdict: judge.Skipped}}}
	if err := WriteJUnit(&b, []judge.Drill{d}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), `tests="3" failures="0" errors="1" skipped="1"`) || !strings.Contains(b.String(), "gate steady: not reached") {
		t.Error(b.String())
	}
}
