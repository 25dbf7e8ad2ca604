package report

import (
	"embed"
	"fmt"
	"html/template"
	"io"

	"fleetdrill/drills/judge"
	"fleetdrill/drills/record"
	"fleetdrill/internal/pagestyle"
)

//go:embed page.tmpl picture.tmpl
var pages embed.FS

//go:embed style.css
var own string

// Style is the style sheet of a run's page: the look all pages share, and the lanes, faults and request
// ticks that only runs have.
func Style() string { return pagestyle.CSS() + own }

// templates parses the embedded pages. They are part of the binary, so an error is one of the program's.
func templates() (*template.Template, error) {
	t := template.New("").Funcs(template.FuncMap{"css": func() template.CSS { return template.CSS(Style()) }})
	return t.ParseFS(pages, "page.tmpl", "picture.tmpl")
}

// page is what page.tmpl prints.
type page struct {
	Run
	Picture picture
	Results []row
	Faults  []faultRow
	Passed  string
}

// row is one expectation of the table, as text: numbers are worded here and not in the template, so that
// page, terminal and JUnit print one value one way.
type row struct {
	judge.Result
	Sign, BoundText, MarginText, Interval string
}

// faultRow is one fault with its evidence, timed relative to the origin of the picture.
type faultRow struct {
	record.Fault
	Marks []evidenceRow
	Seen  []evidenceRow
}

// evidenceRow is one observation or mark with its time relative to the origin.
type evidenceRow struct {
	At, What string
}

// writeHTML prints the page around a picture that was laid out already.
func writeHTML(w io.Writer, r Run, p picture) error {
	t, err := templates()
	if err != nil {
		return err
	}
	d := page{Run: r, Picture: p, Passed: fmt.Sprintf("%d of %d", r.Drill.Passed, r.Drill.Runs)}
	for _, e := range r.Drill.Expectations {
		d.Results = append(d.Results, rowOf(e))
	}
	zero := origin(r.Record)
	for _, f := range r.Drill.Faults {
		fr := faultRow{Fault: f}
		for _, what := range []string{"inject", "effective", "heal", "healed"} {
			if m, ok := mark(r.Record, f.ID+"."+what); ok {
				fr.Marks = append(fr.Marks, evidenceRow{at(m.Hi, zero), what})
			}
		}
		for _, e := range f.Evidence {
			fr.Seen = append(fr.Seen, evidenceRow{at(e.MonoNs, zero), e.What})
		}
		d.Faults = append(d.Faults, fr)
	}
	return t.ExecuteTemplate(w, "page.tmpl", d)
}

// rowOf words one result for the table; what it does not have is a dash.
func rowOf(e judge.Result) row {
	r := row{Result: e, Sign: sign(e.Verdict), BoundText: "–", MarginText: "–", Interval: "–"}
	if e.Bound != nil {
		r.BoundText = judge.Number(*e.Bound, e.Unit)
	}
	if e.Margin != nil {
		r.MarginText = judge.Number(*e.Margin, e.Unit)
	}
	if e.Low != nil && e.High != nil {
		r.Interval = judge.Number(*e.Low, e.Unit) + " to " + judge.Number(*e.High, e.Unit)
	}
	if r.ValueText == "" {
		r.ValueText = "–"
	}
	return r
}

// writeSVG writes the picture alone, with its own style.
func writeSVG(w io.Writer, p picture) error {
	t, err := templates()
	if err != nil {
		return err
	}
	return t.ExecuteTemplate(w, "picture.tmpl", struct {
		picture
		Alone bool
	}{p, true})
}

// Zero names the instant that times count from.
func (p page) Zero() string { return zeroName(p.Record) }

// WilsonPercent is the lower end of the pass rate's interval.
func (p page) WilsonPercent() string { return fmt.Sprintf("%.0f %%", 100*p.Drill.Wilson95Low) }
