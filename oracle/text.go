package oracle

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// Text is the report for people: a row per rank, then the first differences of those that differ.
func (r Report) Text() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "worker\trank\tseq\tengine\tgateway\tmissing\textra\tmoved\t")
	for _, row := range r.Workers {
		verdict := "equal"
		switch {
		case row.Error != "":
			verdict = "not compared"
		case !row.Equal:
			verdict = "DIFFERENT"
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\n", row.Worker, row.Rank, row.Seq,
			row.EngineBlocks, row.GatewayBlocks, row.Missing, row.Extra, row.Moved, verdict)
	}
	w.Flush() // into memory: cannot fail
	for _, row := range r.Workers {
		row.text(&b)
	}
	return b.String()
}

func (row RankReport) text(b *strings.Builder) {
	if row.Error != "" {
		fmt.Fprintf(b, "\n%s rank %d: %s\n", row.Worker, row.Rank, row.Error)
	}
	if len(row.Differences) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s rank %d, the first of %d differences:\n", row.Worker, row.Rank, row.Missing+row.Extra+row.Moved)
	if row.Missing > 0 && row.Shed > 0 {
		fmt.Fprintf(b, "  the gateway gave up %d blocks to stay below --index-max-bytes; missing ones may be those\n", row.Shed)
	}
	for _, d := range row.Differences {
		fmt.Fprintf(b, "  %-7s  block %d of its chain, hash %d", d.Side, d.Position, uint64(d.Hash))
		if d.Gateway != nil {
			fmt.Fprintf(b, " (at the gateway: block %d)", d.Gateway.Position)
		}
		b.WriteByte('\n')
		if len(d.Events) > 0 {
			fmt.Fprintf(b, "           the engine's batches: %s\n", strings.Join(d.Events, ", "))
		}
	}
}
