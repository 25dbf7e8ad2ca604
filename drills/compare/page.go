package compare

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"math"

	"fleetdrill/drills/judge"
	"fleetdrill/drills/report"
)

//go:embed diff.tmpl overlay.tmpl diff.css
var pages embed.FS

// HTML is the comparison as one page that needs no script and no network, as a run's report does.
func (d Diff) HTML() ([]byte, error) {
	own, err := pages.ReadFile("diff.css")
	if err != nil {
		return nil, fmt.Errorf("reading the page's style: %w", err)
	}
	t := template.New("").Funcs(template.FuncMap{
		"css": func() template.CSS { return template.CSS(report.Style() + string(own)) },
		"tag": tag, "instant": instantText})
	if t, err = t.ParseFS(pages, "diff.tmpl", "overlay.tmpl"); err != nil {
		return nil, fmt.Errorf("parsing the page: %w", err)
	}
	var b bytes.Buffer
	if err := t.ExecuteTemplate(&b, "diff.tmpl", d); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// Picture is the overlay of both runs.
func (d Diff) Picture() overlay { return d.layOut() }

// Zero names the common origin.
func (d Diff) Zero() string { return d.zero() }

// tag is a verdict with its class; a run without the expectation has a dash.
func tag(r *judge.Result) map[string]string {
	if r == nil {
		return map[string]string{"Class": "skipped", "Text": none, "Value": ""}
	}
	return map[string]string{"Class": string(r.Verdict), "Text": string(r.Verdict), "Value": r.ValueText}
}

// Measures of the small picture in a table row.
const (
	scaleW = 200.0
	scaleH = 34.0
)

// bars are both intervals of a pair on one scale from zero, with the bound.
type bars struct {
	W, H  float64
	A, B  *bar
	Bound float64 // 0 when there is none
	Label string
}

// bar is an interval with its point; Open says that it has no upper end.
type bar struct {
	X, W, Point float64
	Open        bool
}

// Bars places a pair's intervals; nil when there is no scale to put them on.
func (p Pair) Bars() *bars {
	// The scale begins at zero: a difference must look as large as it is, not as large as the picture.
	top := 0.0
	for _, r := range []*judge.Result{p.A, p.B} {
		if r == nil {
			continue
		}
		for _, v := range []*float64{r.Value, r.High, r.Bound} {
			if v != nil {
				top = max(top, *v)
			}
		}
	}
	// Zeros have no scale, and a bound alone is no measurement.
	if top == 0 || (!measured(p.A) && !measured(p.B)) {
		return nil
	}
	top *= 1.08 // room for what lies at the end of the scale
	out := &bars{W: scaleW, H: scaleH, A: barOf(p.A, top), B: barOf(p.B, top), Label: fmt.Sprintf("%s: A %s, B %s", p.ID, short(p.A), short(p.B))}
	for _, r := range []*judge.Result{p.A, p.B} {
		if r != nil && r.Bound != nil && out.Bound == 0 {
			out.Bound = round(scaleW * *r.Bound / top)
		}
	}
	return out
}

// measured says that there is a value to draw.
func measured(r *judge.Result) bool { return r != nil && r.Value != nil }

// barOf places a result between zero and the top of the scale; what lies below zero sticks to it.
func barOf(r *judge.Result, top float64) *bar {
	if !measured(r) {
		return nil
	}
	low, high, _ := span(*r)
	b := &bar{Open: math.IsInf(high, 1), Point: round(scaleW * max(0, *r.Value) / top)}
	b.X = round(scaleW * max(0, low) / top)
	// An exact value has no width and would vanish.
	b.W = max(1, round(scaleW*min(max(0, high), top)/top-b.X))
	return b
}
