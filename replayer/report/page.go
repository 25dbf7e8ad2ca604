package report

import (
	"embed"
	"fmt"
	"html/template"
	"io"

	"fleetdrill/internal/pagestyle"
	"fleetdrill/replayer/result"
)

//go:embed page.tmpl lines.css
var pages embed.FS

// maxColours is how many runs have a colour of their own; further ones begin again.
const maxColours = 6

// page is what page.tmpl prints.
type page struct {
	Head   result.Summary // what all runs have in common
	Runs   []row
	Charts []chart
	Legend []legend
}

// row is one run of the table, as text.
type row struct {
	Class, Policy, State string
	Reasons, Notes       []string
	Cells                []string
}

type legend struct{ Class, Label string }

// columns are the heads of the table's cells.
var columns = []string{"TTFT p50", "p90", "p99", "TPOT p50", "goodput", "in SLO", "strict", "reuse", "hit / best", "hit / pooled", "balance", "errors"}

// Write writes the page of the runs of one command.
func Write(w io.Writer, runs []result.Run) error {
	css, err := pages.ReadFile("lines.css")
	if err != nil {
		return fmt.Errorf("reading the report's style: %w", err)
	}
	funcs := template.FuncMap{
		"css":     func() template.CSS { return template.CSS(pagestyle.CSS() + string(css)) },
		"columns": func() []string { return columns },
	}
	t, err := template.New("").Funcs(funcs).ParseFS(pages, "page.tmpl")
	if err != nil {
		return fmt.Errorf("reading the report's page: %w", err)
	}
	if err := t.ExecuteTemplate(w, "page.tmpl", layOut(runs)); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

func layOut(runs []result.Run) page {
	var p page
	for i := range runs {
		class := fmt.Sprintf("run%d", i%maxColours)
		p.Runs = append(p.Runs, rowOf(class, &runs[i].Summary))
		p.Legend = append(p.Legend, legend{class, runs[i].Summary.Policy})
	}
	if len(runs) > 0 {
		p.Head = runs[0].Summary
		p.Charts = charts(runs)
	}
	return p
}

func rowOf(class string, s *result.Summary) row {
	r := row{Class: class, Policy: s.Policy, State: "valid", Reasons: s.Reasons, Notes: s.Notes}
	if !s.Valid {
		r.State = "invalid"
	}
	best := "–"
	if s.HitOverBest != nil {
		best = fmt.Sprintf("%.3f", *s.HitOverBest)
	}
	r.Cells = []string{
		fmt.Sprintf("%.0f ms", s.TTFT.P50), fmt.Sprintf("%.0f ms", s.TTFT.P90), fmt.Sprintf("%.0f ms", s.TTFT.P99), fmt.Sprintf("%.1f ms", s.TPOT.P50),
		fmt.Sprintf("%.2f /s", s.Goodput), percent(s.WithinSLO), percent(s.WithinStrict), percent(s.Reuse), best,
		fmt.Sprintf("%.3f", s.HitOverPooled), fmt.Sprintf("%.2f", s.Balance), fmt.Sprint(s.Errors),
	}
	return r
}

func percent(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) }

// charts are the six pictures, a line per run in each.
func charts(runs []result.Run) []chart {
	window := 0.0
	for i := range runs {
		for _, r := range runs[i].Requests {
			window = max(window, float64(r.ScheduledNs)/1e9)
		}
	}
	b := newBins(window)
	var rate, ttft, hit, balance, ttftCDF, gapCDF []line
	for i := range runs {
		s, class := &runs[i].Summary, fmt.Sprintf("run%d", i%maxColours)
		t := measure(b, s.SLO, s.WorkerIDs, runs[i].Requests)
		if i == 0 {
			rate = append(rate, line{"offered", "offered", timeline(b, t.offered)})
		}
		add := func(to *[]line, points []xy) { *to = append(*to, line{class, s.Policy, points}) }
		add(&rate, timeline(b, t.good))
		add(&ttft, timeline(b, t.ttft))
		add(&hit, timeline(b, t.hit))
		add(&balance, timeline(b, t.balance))
		ttfts, gaps := latencies(runs[i].Requests)
		add(&ttftCDF, cdf(ttfts))
		add(&gapCDF, cdf(gaps))
	}
	return []chart{
		plot("Requests per second: offered, and finished within the SLO", "seconds", "1/s", false, 0, rate),
		plot("Median time to first token", "seconds", "ms", false, 0, ttft),
		plot("Share of prompt tokens that were cached", "seconds", "", false, 0, hit),
		plot("Balance: busiest worker over the mean", "seconds", "", false, 1, balance),
		plot("Time to first token: share of requests below", "ms", "", true, 0, ttftCDF),
		plot("Mean gap between a request's tokens: share of requests below", "ms", "", true, 0, gapCDF),
	}
}

// latencies are the times to first token and the mean gaps, in ms, without the warm-up.
func latencies(requests []result.Request) (ttfts, gaps []float64) {
	for i := range requests {
		r := &requests[i]
		if r.Warmup {
			continue
		}
		if r.TTFTNs > 0 {
			ttfts = append(ttfts, float64(r.TTFTNs)/1e6)
		}
		if mean := r.MeanGapNs(); mean > 0 {
			gaps = append(gaps, mean/1e6)
		}
	}
	return ttfts, gaps
}
