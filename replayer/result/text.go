package result

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// Text is the summaries as a table for people, a row per run.
func Text(runs []Run) string {
	var b strings.Builder
	if len(runs) == 0 {
		return ""
	}
	runs[0].Summary.headText(&b)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "policy\trequests\terrors\tTTFT p50\tp90\tp99\tmean ms\tTPOT p50\tgoodput/s\tin SLO\tof ok\tstrict\treuse\thit/best\thit/pooled\tbalance\tpreempted\t")
	for i := range runs {
		runs[i].Summary.rowText(w)
	}
	w.Flush() // into memory, here and below: cannot fail
	b.WriteByte('\n')
	w = tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "policy\tcredit equal\twithin a block\tover\tunder\tlate store\tlate evict\tview\tlate hits\t")
	for i := range runs {
		s := &runs[i].Summary
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", s.Policy, s.Credit.Equal, s.Credit.WithinBlock, s.Credit.Over, s.Credit.Under,
			s.Residue.LateStore, s.Residue.LateEvict, s.Residue.View, s.LateHits)
	}
	w.Flush()
	publishedText(&b, runs)
	for i := range runs {
		runs[i].Summary.remarkText(&b)
	}
	return b.String()
}

// headText says what was replayed, which all runs of a command have in common.
func (s *Summary) headText(b *strings.Builder) {
	rows := "all rows"
	if s.RowRange != "" {
		rows = "rows " + s.RowRange
	}
	fmt.Fprintf(b, "%s, %s at %gx, %s arrivals, seed %d: %d workers of profile %s, %d blocks of %d tokens, %s\n", s.Trace, rows, s.Speed,
		s.Arrivals, s.Seed, s.Workers, s.Profile, s.KVBlocks, s.BlockSize, s.Mode)
	if k := s.Skipped; k.Bad+k.LongInput+k.OverLimit > 0 {
		fmt.Fprintf(b, "left out of %d rows: %d cannot be read, %d above --max-input, %d above the model's limit\n", s.Rows, k.Bad, k.LongInput, k.OverLimit)
	}
	fmt.Fprintf(b, "SLO %s; reuse possible: %.3f with one pool of the fleet's size, %.3f with one that never evicts\n\n", s.SLO, s.PooledReuse, s.UnboundedReuse)
}

func (s *Summary) rowText(w *tabwriter.Writer) {
	best := "-"
	if s.HitOverBest != nil {
		best = fmt.Sprintf("%.3f", *s.HitOverBest)
	}
	fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\t%s\t%s\t%.1f\t%.2f\t%.3f\t%.3f\t%.3f\t%.3f\t%s\t%.3f\t%.2f\t%d\t\n", s.Policy, s.Requests, s.Errors,
		millis(s.TTFT.P50), millis(s.TTFT.P90), millis(s.TTFT.P99), millis(s.TTFT.Mean), s.TPOT.P50, s.Goodput,
		s.WithinSLO, s.WithinSLOOK, s.WithinStrict, s.Reuse, best, s.HitOverPooled, s.Balance, s.Preemptions)
}

// publishedText is a table of its own, so that nobody takes its figures for the others'.
func publishedText(b *strings.Builder, runs []Run) {
	if runs[0].Summary.Published == nil {
		return
	}
	fmt.Fprintln(b, "\nby the public replayer's conventions, for comparison with published tables only")
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "policy\tTTFT p50\tp99\tmean ms\tgoodput/s\tin SLO\tstrict\treuse\thit/oracle\tbalance\t")
	for i := range runs {
		p, hit := runs[i].Summary.Published, "-"
		if p.HitOverOracle != nil {
			hit = fmt.Sprintf("%.3f", *p.HitOverOracle)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%.2f\t%.3f\t%.3f\t%.3f\t%s\t%.2f\t\n", runs[i].Summary.Policy, millis(p.TTFT.P50), millis(p.TTFT.P99), millis(p.TTFT.Mean),
			p.Goodput, p.WithinSLO, p.Strict, p.Reuse, hit, p.Balance)
	}
	w.Flush()
}

// millis writes milliseconds with as many digits as mean something.
func millis(v float64) string {
	if v < 100 {
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// remarkText says what is wrong with a run.
func (s *Summary) remarkText(b *strings.Builder) {
	for _, reason := range s.Reasons {
		fmt.Fprintf(b, "\n%s is INVALID: %s\n", s.Policy, reason)
	}
	for _, note := range s.Notes {
		fmt.Fprintf(b, "\n%s: %s\n", s.Policy, note)
	}
	for text, n := range sorted(s.ByError) {
		fmt.Fprintf(b, "\n%s: %d x %s\n", s.Policy, n, text)
	}
}

// sorted goes over counts, by text.
func sorted(counts map[string]int) iter.Seq2[string, int] {
	return func(yield func(string, int) bool) {
		for _, text := range slices.Sorted(maps.Keys(counts)) {
			if !yield(text, counts[text]) {
				return
			}
		}
	}
}
