package predicate

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"fleetdrill/drills/record"
	"fleetdrill/drills/record/recordtest"
)

func interval(lo, hi float64) record.Interval {
	return record.Interval{Lo: int64(lo * 1e9), Hi: int64(hi * 1e9)}
}

// TestStories runs testdata/*: `run` builds a record, `over from=A to=B`, `at k=SECONDS [from=A]`,
// `after k=SECONDS mark=LO hi=HI` and `live` evaluate each line of their input, `check` reports what is wrong
// with each line.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		rec := &record.Record{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "run" {
				r, err := recordtest.Parse(d.Input)
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				rec = r
				return fmt.Sprintf("%d samples, %d requests\n", len(rec.Samples), len(rec.Requests))
			}
			var b strings.Builder
			for _, line := range strings.Split(d.Input, "\n") {
				b.WriteString(line + "\n    " + answer(t, d, rec, line) + "\n")
			}
			return b.String()
		})
	})
}

func answer(t *testing.T, d *datadriven.TestData, rec *record.Record, line string) string {
	x, err := Parse(line)
	if err != nil {
		return fmt.Sprintf("%d: %v", err.(*Error).Col+1, err)
	}
	env := NewEnv(rec)
	switch d.Cmd {
	case "over":
		return show(x.Over(env, argSeconds(t, d, "from"), argSeconds(t, d, "to")))
	case "at":
		return show(x.At(env, env.lastSample(argSeconds(t, d, "k")+10_000_000), argSeconds(t, d, "from")))
	case "after":
		mark := interval(float64(argSeconds(t, d, "mark"))/1e9, float64(argSeconds(t, d, "hi"))/1e9)
		return show(x.After(env, env.lastSample(argSeconds(t, d, "k")+10_000_000), mark))
	case "live":
		return show(x.Live(env))
	case "check":
		var out []string
		for _, e := range x.Check(Scope{Workers: 3, Ranks: 1, Faults: []string{"death"}, Marks: []string{"steady.end", "death.effective"}}) {
			out = append(out, fmt.Sprintf("%d: %s", e.Col+1, e.Msg))
		}
		if len(out) == 0 {
			return "fine, reads " + x.String()
		}
		return strings.Join(out, "\n    ")
	}
	d.Fatalf(t, "unknown command %s", d.Cmd)
	return ""
}

// argSeconds reads an argument in seconds; 0 without it.
func argSeconds(t *testing.T, d *datadriven.TestData, key string) int64 {
	for _, a := range d.CmdArgs {
		if a.Key == key && len(a.Vals) == 1 {
			v, err := strconv.ParseFloat(a.Vals[0], 64)
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			return int64(math.Round(v * 1e9))
		}
	}
	return 0
}

func show(r Result) string {
	s := r.Truth.String()
	if !math.IsNaN(r.Margin) {
		s += " margin " + strconv.FormatFloat(r.Margin, 'g', 4, 64)
	}
	if !math.IsNaN(r.Value) {
		s += fmt.Sprintf(" (%.4g", r.Value)
		if r.Low != r.High {
			s += fmt.Sprintf(" in %.4g..%.4g", r.Low, r.High)
		}
		s += fmt.Sprintf(" against %.4g %s", r.Bound, r.Unit)
		s = strings.TrimRight(s, " ") + ")"
	}
	if r.Truth == Unknown && r.Why != "" {
		s += ": " + r.Why
	}
	return s
}
