package trace

import (
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Text is the figures as a table for people.
func (s Stat) Text() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "trace\t%s\n", s.Trace)
	fmt.Fprintf(w, "rows\t%s\n", grouped(s.Rows))
	if s.Skipped > 0 {
		fmt.Fprintf(w, "skipped\t%s that cannot be read\n", grouped(s.Skipped))
	}
	fmt.Fprintf(w, "span\t%.1f s: %.2f rows, %s input and %s output tokens a second\n",
		s.SpanS, s.RowsRate, grouped(int(s.InputRate)), grouped(int(s.OutputRate)))
	fmt.Fprintf(w, "slots\t%s stamps, the median step %.3f s; rows at one stamp: p50 %d, p99 %d, max %d\n",
		grouped(s.Slots.Count), s.Slots.StepS, s.Slots.RowsP50, s.Slots.RowsP99, s.Slots.RowsMax)
	w.Flush() // into memory, here and below: cannot fail
	s.lengthText(&b)
	s.reuseText(&b)
	s.headText(&b)
	for i, p := range s.Problems {
		if i == 0 {
			fmt.Fprintf(&b, "\nthe first of the rows skipped\n")
		}
		fmt.Fprintf(&b, "  %s\n", p)
	}
	return b.String()
}

func (s Stat) lengthText(b *strings.Builder) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\ntokens\tmean\tmin\tp50\tp90\tp99\tmax\t")
	for _, row := range []struct {
		name string
		mean float64
		l    Lengths
	}{{"input", s.MeanInput, s.Input}, {"output", s.MeanOutput, s.Output}} {
		fmt.Fprintf(w, "%s\t%s\t", row.name, grouped(int(row.mean+0.5)))
		for _, v := range []int{row.l.Min, row.l.P50, row.l.P90, row.l.P99, row.l.Max} {
			fmt.Fprintf(w, "%s\t", grouped(v))
		}
		fmt.Fprintln(w)
	}
	w.Flush()
}

func (s Stat) reuseText(b *strings.Builder) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nreuse, share of input tokens")
	fmt.Fprintf(w, "  one unbounded cache\t%.4f\t%s different blocks; %.4f of all blocks\n", s.TokenReuse, grouped(s.UniqueBlocks), s.BlockReuse)
	fmt.Fprintf(w, "  longest match x%d\t%.4f\tbusiest worker %.2f times the mean\n", statWorkers, s.LongestMatch8.Reuse, s.LongestMatch8.Balance)
	fmt.Fprintf(w, "  round robin x%d\t%.4f\n", statWorkers, s.RoundRobin8)
	for _, p := range s.Pools {
		fmt.Fprintf(w, "  one LRU pool of %d Mi tokens\t%.4f\n", p.Tokens>>20, p.TokenReuse)
	}
	w.Flush()
}

func (s Stat) headText(b *strings.Builder) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\nfirst blocks\tdifferent\trows with the commonest\t")
	for _, h := range s.Heads {
		fmt.Fprintf(w, "%d\t%s\t%s\t\n", h.Blocks, grouped(h.Distinct), grouped(h.TopRows))
	}
	w.Flush()
}

// grouped writes a whole number from 0 up with a comma before every three digits.
func grouped(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
