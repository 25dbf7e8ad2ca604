package bench

import (
	"fmt"

	"strings"
	"text/tabwriter"

	"fleetdrill/replayer/bench/drive"
)

// table is a text table under construction.
type table struct {
	b strings.Builder
	w *tabwriter.Writer
}

func newTable(heads ...string) *table {
	t := &table{}
	t.w = tabwriter.NewWriter(&t.b, 0, 0, 2, ' ', tabwriter.AlignRight)
	t.row(heads...)
	return t
}

func (t *table) row(cells ...string) { fmt.Fprintln(t.w, strings.Join(cells, "\t")+"\t") }

func (t *table) String() string {
	t.w.Flush() // into memory: cannot fail
	return t.b.String()
}

// mega writes a rate in millions.
func mega(v float64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", v/1e6)
}

func us(v float64) string { return fmt.Sprintf("%.2f", v) }

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func times(v float64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2fx", v)
}

// Text is what was replayed.
func (c CorpusInfo) Text() string {
	return fmt.Sprintf("%s, length x%d, %d copies, %d workers, blocks of %d tokens: %d requests, %d stores, %d removals,\n%d block ops (%d looked up, %d stored, %d removed), %d resident at the end, %.2f GB\n",
		c.Trace, c.LengthFactor, c.Duplication, c.Workers, c.BlockSize, c.Requests, c.StoredEvents, c.RemovedEvents,
		c.BlockOps, c.RequestBlocks, c.StoredBlocks, c.RemovedBlocks, c.Resident, float64(c.Bytes)/1e9)
}

// Text is how quiet the machine was.
func (m Machine) Text() string {
	s := fmt.Sprintf("%d cores, load average up to %.2f; %d trials made again because of others", m.Cores, m.LoadAvg, m.Discards)
	if m.Noisy > 0 {
		s += fmt.Sprintf(", %d kept although others had more than half a core: these figures are not those of a quiet machine", m.Noisy)
	}
	return s + "\n"
}

// Text is the report for people.
func (r *IndexReport) Text() string {
	t := newTable("index", "lanes", "sustained M/s", "held", "achieved M/s", "capacity M/s", "95 %", "lookup p50 us", "p99", "p99.9", "B/membership", "GC", "pause max us")
	for i := range r.Rows {
		row := &r.Rows[i]
		t.row(row.Index, fmt.Sprint(row.Lanes), mega(row.Sustained), fmt.Sprintf("%d/%d", row.Held, row.Trials), mega(row.Achieved), mega(row.Capacity),
			mega(row.CapacityCI.Low)+"-"+mega(row.CapacityCI.High), us(row.Lookup.P50), us(row.Lookup.P99), us(row.Lookup.P999),
			fmt.Sprintf("%.1f", row.BytesPerMembership), fmt.Sprint(row.GC.Cycles), fmt.Sprintf("%.0f", row.GC.MaxUs))
	}
	s := r.Corpus.Text() + r.Machine.Text() + "\n" + t.String()
	if c := r.Control; c != nil {
		s += fmt.Sprintf("\ncontrol, %s against itself: capacity %s, lookup p99 %s\n", c.Index, c.Capacity.text(), c.P99.text())
	}
	if len(r.Comparisons) > 0 {
		t := newTable(r.Rows[0].Index+" over", "sustained", "capacity", "lookup p99 lower by", "bytes fewer by")
		for _, c := range r.Comparisons {
			t.row(c.Over, times(c.Sustained), times(c.Capacity), times(c.P99), times(c.Bytes))
		}
		s += "\n" + t.String()
	}
	return s + "\n" + publishedText(r.Published)
}

func (e Estimate) text() string { return fmt.Sprintf("%.3f (%.3f to %.3f)", e.Median, e.Low, e.High) }

// Text is the report for people.
func (r *LadderReport) Text() string {
	t := newTable("index", "lanes", "window ms", "offered M/s", "achieved M/s", "kept up", "generator", "lookup p50 us", "p99", "p99.9")
	for _, row := range r.Rows {
		generator := map[bool]string{true: "valid", false: "late"}[row.GeneratorValid]
		if !row.Complete {
			generator = "given up"
		}
		t.row(row.Index, fmt.Sprint(row.Lanes), fmt.Sprintf("%.0f", row.WindowMs), mega(row.Offered), mega(row.Achieved), yes(row.KeptUp), generator,
			us(row.Lookup.P50), us(row.Lookup.P99), us(row.Lookup.P999))
	}
	return r.Corpus.Text() + r.Machine.Text() + "\n" + t.String()
}

// Text is the report for people.
func (r *ScalingReport) Text() string {
	t := newTable("index", "workers", "lanes", "capacity M/s", "from linear", "from fewest workers", "lookup p50 us", "p99")
	for _, row := range r.Rows {
		t.row(row.Index, fmt.Sprint(row.Workers), fmt.Sprint(row.Lanes), mega(row.Capacity), fmt.Sprintf("%+.0f %%", 100*row.FromLinear),
			fmt.Sprintf("%+.0f %%", 100*row.FromFirst), us(row.Lookup.P50), us(row.Lookup.P99))
	}
	return r.Corpus.Text() + r.Machine.Text() + "\n" + t.String()
}

// ChurnReport is what `bench churn` found.
type ChurnReport struct {
	Rows []ChurnRow     `json:"rows"`
	Runs []*ChurnResult `json:"runs"`
}

// Text is the report for people.
func (r *ChurnReport) Text() string {
	t := newTable("index", "", "events", "memberships", "runs live", "mean length", "runs per lookup", "lookup p50 us", "p99", "exact queries")
	for _, row := range r.Rows {
		t.row(row.Index, row.Phase, fmt.Sprint(row.Events), fmt.Sprint(row.Memberships), fmt.Sprint(row.RunsLive), fmt.Sprintf("%.1f", row.MeanRunLength),
			fmt.Sprintf("%.2f", row.RunsPerLookup), us(row.Lookup.P50), us(row.Lookup.P99), fmt.Sprint(row.Exact))
	}
	s := t.String() + "\n"
	for i := 0; i+1 < len(r.Rows); i += 2 {
		a, b := r.Rows[i].Lookup, r.Rows[i+1].Lookup
		if a.P50 > 0 && a.P99 > 0 {
			s += fmt.Sprintf("%s, after over before: lookup p50 %.2fx, p99 %.2fx (bar 1.5x, goal 1.1x)\n", r.Rows[i].Index, b.P50/a.P50, b.P99/a.P99)
		}
	}
	for _, run := range r.Runs {
		s += fmt.Sprintf("%s: %d requests in %.0f s, load average %.2f%s\n", run.Rows[0].Index, run.Requests, run.WallS, run.LoadAvg, foreignText(run.Foreign))
	}
	return s
}

func foreignText(f drive.Foreign) string {
	if f.Cores < 0.05 {
		return ""
	}
	return strings.TrimRight(fmt.Sprintf(", others used %.2f cores %s", f.Cores, f.Busiest), " ")
}

// MemoryReport is what `bench memory` found.
type MemoryReport struct {
	Rows []MemoryRow `json:"rows"`
}

// Text is the report for people.
func (r *MemoryReport) Text() string {
	t := newTable("index", "holders per chain", "memberships", "blocks", "heap B/membership", "own count B/membership", "unused MB", "left after clear MB")
	for _, row := range r.Rows {
		own := "-"
		if row.SlabBytes > 0 {
			own = fmt.Sprintf("%.1f", row.SlabPerMembership)
		}
		t.row(row.Index, row.HoldersPerChain, fmt.Sprint(row.Memberships), fmt.Sprint(row.Blocks), fmt.Sprintf("%.1f", row.HeapPerMembership), own,
			fmt.Sprintf("%.1f", float64(row.FreeBytes)/1e6), fmt.Sprintf("%.1f", float64(row.AfterClear)/1e6))
	}
	return t.String() + "\npublished, about two million memberships of 128 workers: chain 60 B, CRTC 887 B, positional 334 B (bar 80, goal 55)\n"
}

// DecisionReport is what `bench decision` found.
type DecisionReport struct {
	Rows []DecisionRow `json:"rows"`
}

// Text is the report for people.
func (r *DecisionReport) Text() string {
	t := newTable("workers", "index", "policy", "decisions/s", "p50 us", "p99", "p99.9", "lookup p50", "p99", "hash p50", "p99", "mean blocks", "hits", "GC", "late")
	for i := range r.Rows {
		row := &r.Rows[i]
		hits, all := 0, 0
		for branch, n := range row.Branches {
			all += n
			if branch == "event_hit" {
				hits += n
			}
		}
		t.row(fmt.Sprint(row.Workers), row.Index, row.Policy, fmt.Sprintf("%.0f", row.DecisionsPerS), us(row.Us.P50), us(row.Us.P99), us(row.Us.P999),
			us(row.Lookup.P50), us(row.Lookup.P99), us(row.Hash.P50), us(row.Hash.P99), fmt.Sprintf("%.0f", row.MeanBlocks),
			fmt.Sprintf("%.0f %%", 100*float64(hits)/float64(max(all, 1))), fmt.Sprint(row.GC.Cycles), fmt.Sprint(row.Late))
	}
	s := t.String() + "\n"
	for i := range r.Rows {
		if f := foreignText(r.Rows[i].Foreign); f != "" {
			s += fmt.Sprintf("%s with %d workers: load average %.2f%s\n", r.Rows[i].Index, r.Rows[i].Workers, r.Rows[i].LoadAvg, f)
		}
	}
	return s + publishedText(publishedDecisions(r.Rows))
}

// PeerReport is what `bench index --shape llmd` found.
type PeerReport struct {
	Rows []PeerRow `json:"rows"`
}

// Text is the report for people.
func (r *PeerReport) Text() string {
	t := newTable("index", "holders", "lookup p50 us", "p99", "beside writer p50", "p99", "allocs", "adds M/s", "B/membership", "clear ms", "of memberships")
	for i := range r.Rows {
		row := &r.Rows[i]
		t.row(row.Index, row.Holders, us(row.Lookup.P50), us(row.Lookup.P99), us(row.Beside.P50), us(row.Beside.P99), fmt.Sprintf("%.2f", row.Allocs), mega(row.Adds),
			fmt.Sprintf("%.1f", row.HeapBytes), fmt.Sprintf("%.1f", row.ClearMs), fmt.Sprint(row.Cleared))
	}
	return t.String() + "\n" + publishedText(publishedPeer(r.Rows))
}

// publishedText is our figures beside others', with what we ask of ourselves.
func publishedText(figures []Figure) string {
	if len(figures) == 0 {
		return ""
	}
	t := newTable("figure", "here", "published", "bar", "goal", "")
	for _, f := range figures {
		t.row(f.Name, f.text(f.Here), f.Published, f.text(f.Bar), f.text(f.Goal), f.Verdict())
	}
	return t.String() + "Published figures are from other machines: compare ratios and orders, not times.\n"
}
