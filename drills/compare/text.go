package compare

import (
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"

	"fleetdrill/drills/judge"
)

// none stands for what a run does not have.
const none = "-"

// Text prints the comparison for a terminal.
func (d Diff) Text() string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, h := range []struct {
		name string
		Head
	}{{"A", d.A}, {"B", d.B}} {
		fmt.Fprintf(t, "%s\t%s\t%s\tseed %d\t%s\n", h.name, h.Drill, h.Verdict, h.Seed, h.RunDir)
	}
	t.Flush()
	for _, n := range d.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	table(&b, "expectation\tA\tB\tvalues", len(d.Expectations), func(i int) string {
		p := d.Expectations[i]
		return fmt.Sprintf("%s\t%s\t%s\t%s", p.ID, short(p.A), short(p.B), p.Says())
	})
	table(&b, fmt.Sprintf("seconds from %s\tA\tB\tB - A", d.zero()), len(d.Marks), func(i int) string {
		m := d.Marks[i]
		return fmt.Sprintf("%s\t%s\t%s\t%s", m.Name, instantText(m.A), instantText(m.B), m.Later())
	})
	table(&b, "from there on\tA\tB\tB - A", len(d.Figures), func(i int) string {
		f := d.Figures[i]
		return fmt.Sprintf("%s\t%s\t%s\t%s", f.Name, f.Text(f.A), f.Text(f.B), f.More())
	})
	return b.String()
}

// table prints a heading and rows of tab-separated cells, set apart by an empty line; nothing without rows.
func table(b *strings.Builder, heading string, rows int, row func(int) string) {
	if rows == 0 {
		return
	}
	fmt.Fprintln(b)
	// tabwriter pads the last cell of a row too, so lines are trimmed once it has laid them out.
	var laid strings.Builder
	t := tabwriter.NewWriter(&laid, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, heading)
	for i := range rows {
		fmt.Fprintln(t, row(i))
	}
	t.Flush()
	for line := range strings.Lines(laid.String()) {
		fmt.Fprintln(b, strings.TrimRight(line, " \n"))
	}
}

// zero names the common origin; runs of different drills have two names for it.
func (d Diff) zero() string {
	if d.A.Zero == d.B.Zero {
		return d.A.Zero
	}
	return d.A.Zero + " (A), " + d.B.Zero + " (B)"
}

// short is a result in one cell.
func short(r *judge.Result) string {
	switch {
	case r == nil:
		return none
	case r.ValueText == "":
		return string(r.Verdict)
	}
	return string(r.Verdict) + " " + r.ValueText
}

// Says words the relation of a pair's values, and warns when the two were measured against other rules.
func (p Pair) Says() string {
	says := map[Relation]string{Overlap: "intervals overlap", Apart: "intervals apart", Equal: "equal", Different: "different", "": none}[p.Relation]
	if p.Reworded {
		says += ", other rules"
	}
	return says
}

// instantText is a mark's later end, the instant at which it had surely come.
func instantText(v *[2]float64) string {
	if v == nil {
		return none
	}
	return signed(v[1], 2)
}

// Later is by how much B's mark came later than A's, empty when one never came.
func (m Instants) Later() string {
	// The later ends are compared: there a mark has surely come, and times count from such an end too.
	if m.A == nil || m.B == nil {
		return none
	}
	return signed(m.B[1]-m.A[1], 2)
}

// signed prints a difference with its sign, and one that rounds to nothing without.
func signed(v float64, decimals int) string {
	text := strconv.FormatFloat(v, 'f', decimals, 64)
	switch {
	case strings.Trim(text, "-0.") == "": // also -0.00, which would claim a direction
		return "0"
	case v > 0:
		return "+" + text
	}
	return text
}

// Text prints one value of a figure; times in milliseconds.
func (f Figure) Text(v *float64) string {
	switch {
	case v == nil:
		return "too few"
	case f.Unit == "s":
		return fmt.Sprintf("%.1f ms", *v*1e3)
	}
	return judge.Number(*v, f.Unit)
}

// More is by how much B's figure is above A's.
func (f Figure) More() string {
	switch {
	case f.A == nil || f.B == nil:
		return none
	case f.Unit == "s":
		return signed((*f.B-*f.A)*1e3, 1) + " ms"
	}
	return signed(*f.B-*f.A, 0)
}
