package compare

import (
	"fmt"
	"slices"
	"strings"

	"fleetdrill/drills/judge"
	"fleetdrill/drills/record"
	"fleetdrill/drills/report"
)

// Diff is two runs, A and B, laid over each other. Its times are seconds from the instant that Zero names
// in each run.
type Diff struct {
	A Head `json:"a"`
	B Head `json:"b"`
	// Notes say what makes the two less comparable: other drills, seeds, victims, machines' versions.
	Notes        []string   `json:"notes"`
	Expectations []Pair     `json:"expectations"`
	Marks        []Instants `json:"marks"`
	Figures      []Figure   `json:"figures"`

	a, b side
}

// Head names one run.
type Head struct {
	RunDir  string        `json:"run_dir"`
	Drill   string        `json:"drill"`
	Seed    uint64        `json:"seed"`
	Verdict judge.Verdict `json:"verdict"`
	Started string        `json:"started,omitempty"`
	Version string        `json:"version,omitempty"`
	// Zero is the mark that the run's times count from.
	Zero string `json:"zero"`
}

// Pair is one expectation in both runs; A or B is nil when that run had no such expectation.
type Pair struct {
	ID string        `json:"id"`
	A  *judge.Result `json:"a"`
	B  *judge.Result `json:"b"`
	// Relation says how the two values stand to each other: see Relate. Empty when there is nothing to
	// compare.
	Relation Relation `json:"relation"`
	// Reworded is set when the rule behind the id is not the same text in both.
	Reworded bool `json:"reworded,omitempty"`
}

// Instants is one mark in both runs: [lo, hi] in seconds, nil where the mark never came.
type Instants struct {
	Name string      `json:"name"`
	A    *[2]float64 `json:"a"`
	B    *[2]float64 `json:"b"`
}

// side is one run with its origin.
type side struct {
	report.Run
	// zero is what times count from; the fault may have acted since earliest.
	zero, earliest int64
}

// Of lays run b over run a.
func Of(a, b report.Run) Diff {
	sa, sb := newSide(a), newSide(b)
	d := Diff{A: sa.head(), B: sb.head(), Notes: []string{}, a: sa, b: sb}
	d.Notes = append(d.Notes, notes(sa, sb)...)
	d.Expectations = pairs(a.Drill.Expectations, b.Drill.Expectations)
	d.Marks = instants(sa, sb)
	d.Figures = figures(sa, sb)
	return d
}

// newSide finds a run's own origin: each run has its own clock, so nothing else could be shared.
func newSide(r report.Run) side {
	_, at := report.Origin(r.Record)
	return side{r, at.Hi, at.Lo}
}

// head names the run as a table or a page begins with it.
func (s side) head() Head {
	name, _ := report.Origin(s.Record)
	return Head{RunDir: s.Drill.RunDir, Drill: s.Record.Drill, Seed: s.Record.Seed, Verdict: s.Drill.Verdict,
		Started: s.Started, Version: s.Version, Zero: name}
}

// seconds is an instant of the run on the common axis.
func (s side) seconds(ns int64) float64 { return float64(ns-s.zero) / 1e9 }

// notes says what keeps the two runs from being two draws of one experiment. Nothing here is refused: a
// person may want to see an old gateway beside a new drill.
func notes(a, b side) []string {
	var out []string
	add := func(differ bool, format string, args ...any) {
		if differ {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	add(a.Record.Drill != b.Record.Drill, "different drills: %s and %s", a.Record.Drill, b.Record.Drill)
	add(a.Record.Seed != b.Record.Seed, "different seeds: other victims, instants and prompts")
	add(len(a.Record.Workers) != len(b.Record.Workers), "different fleets: %d and %d workers", len(a.Record.Workers), len(b.Record.Workers))
	add(a.Record.PeriodNs != b.Record.PeriodNs, "different sampling periods: %g ms and %g ms", float64(a.Record.PeriodNs)/1e6, float64(b.Record.PeriodNs)/1e6)
	add(a.Version != b.Version && a.Version != "" && b.Version != "", "different versions of fleetdrill: %s and %s", a.Version, b.Version)
	add(victims(a) != victims(b), "different targets: %s and %s", victims(a), victims(b))
	nameA, _ := report.Origin(a.Record)
	nameB, _ := report.Origin(b.Record)
	add(nameA != nameB, "aligned on different marks: %s and %s", nameA, nameB)
	for _, s := range []struct {
		name string
		side side
	}{{"A", a}, {"B", b}} {
		v := s.side.Drill.Verdict
		add(v == judge.Invalid || v == judge.Error, "%s is %s: %s", s.name, v, s.side.Drill.Reason)
	}
	return out
}

// victims lists the faults of a run with their targets: death on w3.
func victims(s side) string {
	var out []string
	for _, f := range s.Record.Faults {
		out = append(out, f.ID+" on "+f.Target)
	}
	if len(out) == 0 {
		return "no fault"
	}
	return strings.Join(out, ", ")
}

// pairs matches expectations by id: those of A in their order, then what only B has.
func pairs(a, b []judge.Result) []Pair {
	var out []Pair
	for i := range a {
		p := Pair{ID: a[i].ID, A: &a[i]}
		if j := index(b, a[i].ID); j >= 0 {
			p.B = &b[j]
			p.Relation, p.Reworded = Relate(a[i], b[j]), a[i].Rule != b[j].Rule
		}
		out = append(out, p)
	}
	for j := range b {
		if index(a, b[j].ID) < 0 {
			out = append(out, Pair{ID: b[j].ID, B: &b[j]})
		}
	}
	return out
}

// instants matches marks by name, in the order in which A, and then B, saw them.
func instants(a, b side) []Instants {
	var out []Instants
	for _, m := range a.Record.Marks {
		out = append(out, Instants{Name: m.Name, A: a.instant(m.Interval)})
	}
	for _, m := range b.Record.Marks {
		i := slices.IndexFunc(out, func(x Instants) bool { return x.Name == m.Name })
		if i < 0 {
			out = append(out, Instants{Name: m.Name})
			i = len(out) - 1
		}
		out[i].B = b.instant(m.Interval)
	}
	return out
}

// instant is a mark's interval on the common axis.
func (s side) instant(m record.Interval) *[2]float64 {
	return &[2]float64{s.seconds(m.Lo), s.seconds(m.Hi)}
}
