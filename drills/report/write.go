package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"fleetdrill/drills/judge"
	"fleetdrill/drills/record"
	"fleetdrill/drills/scenario"
)

// Run is everything a report shows.
type Run struct {
	Drill    judge.Drill
	Scenario *scenario.Scenario
	Record   *record.Record
	// Reproduce is the command that runs the same drill with the same seed; empty leaves it out.
	Reproduce string
	// Started is the wall-clock start as printed, Version the version of fleetdrill; empty leaves them out.
	Started string
	Version string
}

// Write leaves verdict.json, junit.xml, timeline.txt, timeline.svg and report.html in an existing folder.
func Write(dir string, r Run) error {
	err := writeFiles(dir, []file{
		{VerdictFile, func(w io.Writer) error { return writeVerdict(w, r.Drill) }},
		{"junit.xml", func(w io.Writer) error { return WriteJUnit(w, []judge.Drill{r.Drill}) }},
	})
	if err != nil {
		return err
	}
	return WritePages(dir, r)
}

// WritePages leaves only what is drawn from the verdict: timeline.txt, timeline.svg and report.html.
func WritePages(dir string, r Run) error {
	p := layOut(r)
	return writeFiles(dir, []file{
		{"timeline.txt", func(w io.Writer) error { return writeText(w, r) }},
		{"timeline.svg", func(w io.Writer) error { return writeSVG(w, p) }},
		{PageFile, func(w io.Writer) error { return writeHTML(w, r, p) }},
	})
}

// file is one file to write and what prints it.
type file struct {
	name  string
	write func(io.Writer) error
}

// writeFiles renders each file before it touches the old one: an error in a template must not leave half a
// page behind.
func writeFiles(dir string, files []file) error {
	for _, f := range files {
		var b bytes.Buffer
		if err := f.write(&b); err != nil {
			return fmt.Errorf("rendering %s: %w", f.name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, f.name), b.Bytes(), 0o644); err != nil {
			return fmt.Errorf("writing %s: %w", f.name, err)
		}
	}
	return nil
}

// writeVerdict leaves < and & as they are: a rule must read as it was written, and JSON needs no HTML.
func writeVerdict(w io.Writer, d judge.Drill) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(d)
}

// marks before each line of a summary.
var signs = map[judge.Verdict]string{judge.Pass: "ok", judge.Fail: "FAIL", judge.Unknown: "unknown", judge.Invalid: "invalid",
	judge.Error: "ERROR", judge.Skipped: "skipped"}

// Summary is what a terminal shows of a finished drill: the verdict, one line per expectation, and where
// the report is.
func Summary(d judge.Drill) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s  seed %d\n", strings.ToUpper(string(d.Verdict)), d.Name, d.Seed)
	width := 0
	for _, r := range d.Expectations {
		width = max(width, len(r.ID))
	}
	for _, r := range d.Expectations {
		fmt.Fprintf(&b, "  %-7s  %-*s  %s\n", signs[r.Verdict], width, r.ID, r.Sentence)
	}
	for _, g := range d.Gates {
		if !g.OK {
			fmt.Fprintf(&b, "  %-7s  %-*s  %s\n", "gate", width, g.Name, g.Detail)
		}
	}
	if d.RunDir != "" {
		fmt.Fprintf(&b, "  report   %s\n", filepath.Join(d.RunDir, PageFile))
	}
	return b.String()
}
