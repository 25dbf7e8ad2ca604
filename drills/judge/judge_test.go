package judge

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"fleetdrill/drills/record"
	"fleetdrill/drills/record/recordtest"
	"fleetdrill/drills/scenario"
)

// frame is the drill around the expectations of a story: w3 of three is killed.
const frame = `version: 1
name: story
fleet: {workers: 3}
load: [{id: main, synth: {rate: 24/s, input: 100, output: 10}}]
timeline:
  - {fault: kill, id: death, target: w3, at: steady.end}
  - {wait: settle, until: death.effective + 7s}
expect:
`

// TestStories runs testdata/*: `run` builds a record, `judge [strict]` decides the expectations of its
// input, one flow mapping a line, and shows each result and the verdict of the run.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var rec *record.Record
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "run":
				r, err := recordtest.Parse(d.Input)
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				rec = r
				return ""
			case "judge":
				text := frame
				for _, line := range strings.Split(d.Input, "\n") {
					text += "  - {" + line + "}\n"
				}
				s, err := scenario.Parse("story.yaml", []byte(text))
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				return show(Judge(s, rec, Options{Strict: d.HasArg("strict")}))
			}
			d.Fatalf(t, "unknown command %s", d.Cmd)
			return ""
		})
	})
}

func show(d Drill) string {
	var b strings.Builder
	for _, r := range d.Expectations {
		fmt.Fprintf(&b, "%s %s", r.ID, r.Verdict)
		if r.ValueText != "" {
			fmt.Fprintf(&b, " [%s]", r.ValueText)
		}
		if r.Margin != nil {
			fmt.Fprintf(&b, " margin %s", strconv.FormatFloat(*r.Margin, 'g', 4, 64))
		}
		fmt.Fprintf(&b, "\n    %s\n", r.Sentence)
	}
	fmt.Fprintf(&b, "run: %s %s\n", d.Verdict, d.Reason)
	return b.String()
}

// TestWilson checks the lower bound against the figures that the documentation quotes.
func TestWilson(t *testing.T) {
	for _, c := range []struct {
		k, n int
		want float64
	}{{0, 0, 0}, {0, 20, 0}, {1, 1, 0.2065}, {20, 20, 0.8389}, {73, 73, 0.9500}, {19, 20, 0.7639}} {
		if got := Wilson95Low(c.k, c.n); math.Abs(got-c.want) > 5e-5 {
			t.Errorf("%d of %d: %.4f, want %.4f", c.k, c.n, got, c.want)
		}
	}
}

// TestWorst pins the order of a matrix and the exit codes.
func TestWorst(t *testing.T) {
	order := []Verdict{Skipped, Pass, Unknown, Invalid, Fail, Error}
	codes := []int{0, 0, 2, 3, 1, 5}
	for i, v := range order {
		if got := v.ExitCode(); got != codes[i] {
			t.Errorf("%s exits %d", v, got)
		}
		if got := Worst(append([]Verdict{v}, order[:i]...)...); got != v {
			t.Errorf("worst up to %s is %s", v, got)
		}
	}
	if Worst() != Error {
		t.Error("an empty matrix is not an error")
	}
}

// TestNumber pins how values are printed.
func TestNumber(t *testing.T) {
	for _, c := range []struct {
		v    float64
		unit string
		want string
	}{{2.5, "s", "2.5 s"}, {0.0004, "s", "0 s"}, {-0.0001, "", "0"}, {96e6, "bytes", "96 MB"}, {1.25e9, "bytes", "1.3 GB"}, {12, "", "12"}, {1.0 / 3, "", "0.333"}} {
		if got := Number(c.v, c.unit); got != c.want {
			t.Errorf("%v %s: %q, want %q", c.v, c.unit, got, c.want)
		}
	}
}
