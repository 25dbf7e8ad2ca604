package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"fleetdrill/drills/judge"
	"fleetdrill/drills/record"
)

// Inspection is a run told in order, for someone who was handed its folder: what happened when, which
// requests failed, and what came of it. Its times are seconds from the mark that Zero names.
type Inspection struct {
	RunDir   string        `json:"run_dir"`
	Drill    string        `json:"drill"`
	Seed     uint64        `json:"seed"`
	Verdict  judge.Verdict `json:"verdict"`
	Reason   string        `json:"reason,omitempty"`
	Started  string        `json:"started,omitempty"`
	Version  string        `json:"version,omitempty"`
	Zero     string        `json:"zero"`
	Timeline []Happening   `json:"timeline"`
	// Failures are the requests that did not end well, grouped by what they have in common.
	Failures     []FailureGroup `json:"failures"`
	Faults       []record.Fault `json:"faults"`
	Gates        []record.Gate  `json:"gates"`
	Expectations []judge.Result `json:"expectations"`
}

// Happening is one line of the timeline. Kind is mark, fault (evidence of one), worker (a state or a word
// of the routing state that changed), count (a counter of recovery that rose) or verdict.
type Happening struct {
	AtS  float64 `json:"at_s"`
	Kind string  `json:"kind"`
	What string  `json:"what"`

	ns int64
}

// Inspect tells a run.
func Inspect(r Run) Inspection {
	zero, at := Origin(r.Record)
	out := Inspection{RunDir: r.Drill.RunDir, Drill: r.Record.Drill, Seed: r.Record.Seed, Verdict: r.Drill.Verdict, Reason: r.Drill.Reason,
		Started: r.Started, Version: r.Version, Zero: zero, Faults: r.Record.Faults, Gates: r.Drill.Gates, Expectations: r.Drill.Expectations}
	out.Timeline = slices.Concat(marksOf(r.Record), evidenceOf(r.Record), transitions(r.Record), decisions(r.Drill))
	// Stable: at one instant a mark comes before what was seen because of it.
	slices.SortStableFunc(out.Timeline, func(a, b Happening) int { return int(min(max(a.ns-b.ns, -1), 1)) })
	for i := range out.Timeline {
		// Whole microseconds: below that the lab's own two clock readings differ.
		out.Timeline[i].AtS = float64((out.Timeline[i].ns-at.Hi)/1e3) / 1e6
	}
	out.Failures = failures(r.Record, at.Hi)
	return out
}

// marksOf places a mark at its later end: there it has surely come.
func marksOf(rec *record.Record) []Happening {
	var out []Happening
	for _, m := range rec.Marks {
		what := m.Name
		// Below a millisecond the width of a mark is the lab's clock readings, which nobody has to know.
		if width := m.Hi - m.Lo; width >= 1e6 {
			what += fmt.Sprintf(" (known to %.0f ms)", float64(width)/1e6)
		}
		out = append(out, Happening{Kind: "mark", What: what, ns: m.Hi})
	}
	return out
}

// evidenceOf lists what the lab saw of each fault, when it saw it.
func evidenceOf(rec *record.Record) []Happening {
	var out []Happening
	for _, f := range rec.Faults {
		for _, e := range f.Evidence {
			out = append(out, Happening{Kind: "fault", What: fmt.Sprintf("%s (%s %s): %s", f.ID, f.Kind, f.Target, e.What), ns: e.MonoNs})
		}
	}
	return out
}

// decisions place each expectation where its deciding sample was.
func decisions(d judge.Drill) []Happening {
	var out []Happening
	for _, e := range d.Expectations {
		// What was skipped or vacuous was decided at no instant; it is in the list of expectations.
		if e.DecidedNs != 0 {
			out = append(out, Happening{Kind: "verdict", What: fmt.Sprintf("%s %s: %s", e.ID, e.Verdict, e.Sentence), ns: e.DecidedNs})
		}
	}
	return out
}

// Text prints the inspection for a terminal: the story first, then what is wrong, then the verdict in
// full, so that the end of a long print is what it came to.
func (in Inspection) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s  seed %d", strings.ToUpper(string(in.Verdict)), in.Drill, in.Seed)
	if in.Started != "" {
		fmt.Fprintf(&b, "  started %s", in.Started)
	}
	fmt.Fprintf(&b, "\n  %s\n", in.RunDir)
	if in.Reason != "" {
		fmt.Fprintf(&b, "  %s\n", in.Reason)
	}
	fmt.Fprintf(&b, "\nwhat happened, in seconds from %s\n", in.Zero)
	for _, h := range in.Timeline {
		fmt.Fprintf(&b, "%9s  %-7s  %s\n", thousandths(h.AtS), h.Kind, h.What)
	}
	b.WriteString("\nrequests that did not end well\n")
	if len(in.Failures) == 0 {
		b.WriteString("  none\n")
	}
	for _, f := range in.Failures {
		fmt.Fprintf(&b, "  %s\n", f)
	}
	b.WriteString("\nfaults\n")
	for _, f := range in.Faults {
		fmt.Fprintf(&b, "  %-13s  %s: %s %s%s\n", confirmedText(f.Confirmed), f.ID, f.Kind, f.Target, orEmpty(": ", f.Error))
	}
	if len(in.Faults) == 0 {
		b.WriteString("  none was injected\n")
	}
	b.WriteString("\ngates\n")
	in.rows(&b, len(in.Gates), func(i int) (string, string, string) {
		g := in.Gates[i]
		return map[bool]string{true: "holds", false: "broken"}[g.OK], g.Name, g.Detail
	})
	b.WriteString("\nexpectations\n")
	in.rows(&b, len(in.Expectations), func(i int) (string, string, string) {
		e := in.Expectations[i]
		return string(e.Verdict), e.ID, e.Sentence
	})
	return b.String()
}

// thousandths prints seconds with a sign; what rounds to nothing has none.
func thousandths(s float64) string {
	if math.Abs(s) < 0.0005 {
		return "0.000"
	}
	return fmt.Sprintf("%+.3f", s)
}

// rows prints lines of three columns.
func (Inspection) rows(b *strings.Builder, n int, row func(int) (string, string, string)) {
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for i := range n {
		state, name, text := row(i)
		fmt.Fprintf(t, "  %s\t%s\t%s\n", state, name, text)
	}
	t.Flush()
}

// confirmedText says whether the lab saw a fault act; the report page uses the same words.
func confirmedText(ok bool) string {
	if ok {
		return "confirmed"
	}
	return "not confirmed"
}

// orEmpty sets a separator before a text that may be missing, so that no print ends in a lone colon.
func orEmpty(before, text string) string {
	if text == "" {
		return ""
	}
	return before + text
}
