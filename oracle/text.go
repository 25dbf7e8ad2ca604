package oracle

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"fleetdrill/internal/contract"
)

// Text is the report for people: a row per rank, then the first differences of those that differ.
func (r Report) Text() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	hosts := slices.ContainsFunc(r.Workers, func(row RankReport) bool { return row.HostEngineBlocks+row.HostGatewayBlocks > 0 })
	host := func(format string, args ...any) string {
		if !hosts {
			return ""
		}
		return fmt.Sprintf(format, args...)
	}
	fmt.Fprintf(w, "worker\trank\tseq\tengine\tgateway\t%smissing\textra\tmoved\t\n", host("engine's host\tgateway's\t"))
	for _, row := range r.Workers {
		verdict := "equal"
		switch {
		case row.Error != "":
			verdict = "not compared"
		case !row.Equal:
			verdict = "DIFFERENT"
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%s%d\t%d\t%d\t%s\n", row.Worker, row.Rank, row.Seq,
			row.EngineBlocks, row.GatewayBlocks, host("%d\t%d\t", row.HostEngineBlocks, row.HostGatewayBlocks), row.Missing, row.Extra, row.Moved, verdict)
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
	if row.Missing > 0 && row.Orphans > 0 {
		fmt.Fprintf(b, "  the gateway was told of %d stores or host blocks without a place that it knows; missing ones may be those\n", row.Orphans)
	}
	for _, d := range row.Differences {
		fmt.Fprintf(b, "  %-7s  %s, hash %d", d.Side, d.where(), uint64(d.Hash))
		if d.Gateway != nil {
			fmt.Fprintf(b, " (at the gateway: block %d)", d.Gateway.Position)
		}
		b.WriteByte('\n')
		if len(d.Events) > 0 {
			fmt.Fprintf(b, "           the engine's batches: %s\n", strings.Join(d.Events, ", "))
		}
	}
}

// where is a difference's place in words.
func (d Difference) where() string {
	out := fmt.Sprintf("block %d of its chain", d.Position)
	if d.Position < 0 {
		out = "a block of unknown place"
	}
	if d.Tier == contract.TierHost {
		out += ", on the host"
	}
	return out
}
