package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fleetdrill/drills/report"
)

// TestRecheck: the folder's own scenario, edited in place, decides; the exit code is the new verdict's.
func TestRecheck(t *testing.T) {
	drill := storedRun(t)
	dir := filepath.Join(drill, "1")
	code, out, errs := call("drill", "recheck", filepath.Join(drill, "latest"))
	if code != exitPass || !strings.Contains(out, "PASS  stored  seed 42") || strings.Contains(out, "->") {
		t.Fatalf("code %d, out %q, err %q", code, out, errs)
	}
	writeFile(t, filepath.Join(dir, report.ScenarioFile), strings.Replace(storedScenario, "within: 2.5s", "within: 1.5s", 1))
	code, out, _ = call("drill", "recheck", drill)
	if code != exitFail || !strings.Contains(out, "FAIL (was pass)") || !strings.Contains(out, "pass -> fail  out-of-routing") {
		t.Fatalf("code %d, out %q", code, out)
	}
	for _, name := range []string{report.VerdictFile, "junit.xml", report.PageFile} {
		if !strings.Contains(readFile(t, filepath.Join(dir, name)), "bound 1.5 s") {
			t.Errorf("%s is still the old one", name)
		}
	}
}

// TestRecheckByOtherRules: rules from elsewhere are kept beside what was run, and go when the folder's own
// decide again.
func TestRecheckByOtherRules(t *testing.T) {
	drill := storedRun(t)
	dir := filepath.Join(drill, "1")
	rules := filepath.Join(t.TempDir(), "edited.yaml")
	writeFile(t, rules, strings.Replace(storedScenario, "within: 2.5s", "within: 1.5s", 1))
	kept := filepath.Join(dir, report.RulesFile)

	before := readFile(t, filepath.Join(dir, report.VerdictFile))
	code, out, _ := call("drill", "recheck", dir, "--scenario", rules, "--dry-run", "--json")
	var got struct {
		Was, Verdict string
		Changed      int
		Written      bool
		Expectations []struct{ ID, Was, Now, Verdict, Sentence string }
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	if code != exitFail || got.Was != "pass" || got.Verdict != "fail" || got.Changed != 1 || got.Written || len(got.Expectations) != 2 ||
		got.Expectations[0].Was != "pass" || got.Expectations[0].Now != "fail" || got.Expectations[0].Sentence == "" {
		t.Errorf("code %d, %+v", code, got)
	}
	if _, err := os.Stat(kept); err == nil || readFile(t, filepath.Join(dir, report.VerdictFile)) != before {
		t.Error("a dry run wrote")
	}

	if code, _, errs := call("drill", "recheck", dir, "--scenario", rules); code != exitFail {
		t.Fatalf("code %d, %s", code, errs)
	}
	if readFile(t, kept) != readFile(t, rules) || readFile(t, filepath.Join(dir, report.ScenarioFile)) != storedScenario {
		t.Error("the rules were not kept beside what was run")
	}
	if code, _, errs := call("drill", "recheck", dir); code != exitPass {
		t.Fatalf("code %d, %s", code, errs)
	}
	if _, err := os.Stat(kept); err == nil {
		t.Error("the rules of an earlier recheck are still there")
	}
}

// TestStrictRecheck: what the point decided is unknown with --strict.
func TestStrictRecheck(t *testing.T) {
	drill := storedRun(t)
	writeFile(t, filepath.Join(drill, "1", report.ScenarioFile), strings.Replace(storedScenario, "within: 2.5s", "within: 2.05s", 1))
	if code, out, _ := call("drill", "recheck", drill, "--dry-run"); code != exitPass {
		t.Errorf("code %d, %s", code, out)
	}
	if code, out, _ := call("drill", "recheck", drill, "--dry-run", "--strict"); code != exitUnknown {
		t.Errorf("code %d, %s", code, out)
	}
}

// TestStoredRunsThatCannotBeRead: each command says which file and line is wrong, with the code of a caller's
// mistake, and touches nothing.
func TestStoredRunsThatCannotBeRead(t *testing.T) {
	for _, c := range []struct {
		name, file, text, want string
	}{
		{"a sample cut short", "samples.jsonl", "{\"k\":0,\"sent_ns\":1,\"received_ns\":2}\n{\"k\":", "samples.jsonl:2: unexpected end of JSON input"},
		{"a verdict of another kind", "verdict.json", "{\n\"name\": 4}", "verdict.json:2: "},
		{"a scenario with a mistake", "scenario.yaml", storedScenario + "nonsense: 1\n", "scenario.yaml:14:1: unknown key \"nonsense\""},
		{"a scenario of another drill", "scenario.yaml", strings.Replace(storedScenario, "name: stored", "name: foreign", 1), "is the drill foreign, the run was stored"},
	} {
		t.Run(c.name, func(t *testing.T) {
			drill := storedRun(t)
			dir := filepath.Join(drill, "1")
			page := readFile(t, filepath.Join(dir, report.PageFile))
			writeFile(t, filepath.Join(dir, c.file), c.text)
			code, _, errs := call("drill", "recheck", dir)
			if code != exitUsage || !strings.Contains(errs, c.want) {
				t.Errorf("code %d, %q, want %q", code, errs, c.want)
			}
			if readFile(t, filepath.Join(dir, report.PageFile)) != page {
				t.Error("the report was written all the same")
			}
		})
	}
	empty := t.TempDir()
	for _, args := range [][]string{{"drill", "recheck", empty}, {"report", empty}, {"drill", "diff", empty, empty},
		{"incident", "inspect", empty}, {"incident", "reproduce", empty}} {
		if code, _, errs := call(args...); code != exitUsage || !strings.Contains(errs, "not a run folder") {
			t.Errorf("%q: code %d, %q", args, code, errs)
		}
		if code, _, errs := call(args[:2]...); args[0] != "report" && args[1] != "diff" && (code != exitUsage || !strings.Contains(errs, "--help")) {
			t.Errorf("%q without a folder: code %d, %q", args[:2], code, errs)
		}
	}
}

// TestReportAndDiff: the pages are drawn from the folders and their paths printed.
func TestReportAndDiff(t *testing.T) {
	a, b := storedRun(t), storedRun(t)
	page := filepath.Join(a, "1", report.PageFile)
	if err := os.Remove(page); err != nil {
		t.Fatal(err)
	}
	if code, out, errs := call("report", a); code != exitPass || strings.TrimSpace(out) != page || !strings.Contains(readFile(t, page), "<svg") {
		t.Errorf("code %d, out %q, err %q", code, out, errs)
	}
	code, out, errs := call("drill", "diff", a, filepath.Join(b, "latest"))
	if code != exitPass || !strings.Contains(out, "intervals overlap") || !strings.Contains(out, filepath.Join(b, "1", "diff.html")) {
		t.Errorf("code %d, out %q, err %q", code, out, errs)
	}
	elsewhere := filepath.Join(t.TempDir(), "d.html")
	code, out, _ = call("drill", "diff", a, b, "--out", elsewhere, "--json")
	var got struct {
		Page         string
		A, B         struct{ Seed uint64 }
		Expectations []struct{ ID, Relation string }
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	if code != exitPass || got.Page != elsewhere || got.A.Seed != 42 || len(got.Expectations) != 2 || got.Expectations[0].Relation != "overlap" {
		t.Errorf("code %d, %+v", code, got)
	}
	if !strings.Contains(readFile(t, elsewhere), "two runs compared") {
		t.Error("no page where --out said")
	}
}
