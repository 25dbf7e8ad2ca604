package workerbench

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRowsAreMediansWithTheirRange(t *testing.T) {
	f := figure{name: "f", unit: "ms", bar: 10, goal: 5}
	for _, c := range []struct {
		values    []float64
		value     float64
		low, high float64
		verdict   string
	}{
		{[]float64{7}, 7, 7, 7, VerdictBar},
		{[]float64{9, 1, 4}, 4, 1, 9, VerdictGoal},
		{[]float64{20, 2}, 11, 2, 20, VerdictMissed},
	} {
		r, ok := f.row(c.values)
		if !ok || r.Value != c.value || r.Low != c.low || r.High != c.high || r.Verdict != c.verdict || r.Runs != len(c.values) {
			t.Errorf("%v gives %+v", c.values, r)
		}
	}
	if _, ok := f.row(nil); ok {
		t.Error("a figure without a measurement has a row")
	}
	more := figure{bar: 10, goal: 20, more: true}
	for v, want := range map[float64]string{9: VerdictMissed, 10: VerdictBar, 25: VerdictGoal} {
		if got := more.verdict(v); got != want {
			t.Errorf("%v where more is better is %s, want %s", v, got, want)
		}
	}
}

func TestThePeerStandsBesideTheSameFigure(t *testing.T) {
	rows := []Row{{Figure: "a", Value: 6}, {Figure: "b", Value: 1}, {Figure: "c", Value: 1}}
	beside(rows, []Row{{Figure: "b", Value: 4}, {Figure: "c"}})
	four, quarter, zero := 4.0, 0.25, 0.0
	want := []Row{{Figure: "a", Value: 6}, {Figure: "b", Value: 1, Peer: &four, Ratio: &quarter}, {Figure: "c", Value: 1, Peer: &zero}}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Error(diff)
	}
}

func TestTable(t *testing.T) {
	bar, goal, peer, ratio := 60.0, 15.0, 31.6, 0.4
	r := Result{
		Subject: "fleetdrill worker", Peer: "peer", CPUs: 2, LoadBefore: 0.5, LoadAfter: 1.25,
		Rows: []Row{
			{Figure: "start", Unit: "ms", Value: 12.64, Low: 10, High: 16.2, Runs: 20, Bar: &bar, Goal: &goal, Verdict: VerdictGoal, Peer: &peer, Ratio: &ratio},
			{Figure: "rate", Unit: "requests/s", Value: 45123.4, Low: 44000, High: 46000, Runs: 3, MoreIsBetter: true},
		},
		Skipped: []string{"idle of the peer: its memory and CPU need --peer-pid"},
	}
	var out bytes.Buffer
	if err := r.Write(&out); err != nil {
		t.Fatal(err)
	}
	const want = `fleetdrill worker, 2 CPUs, load average 0.50 before and 1.25 after

figure            value  range        runs  bar  goal        peer  ratio  
start, ms         12.6   10-16.2      20    60   15    goal  31.6  0.40   
rate, requests/s  45123  44000-46000  3     -    -           -     -      
not measured: idle of the peer: its memory and CPU need --peer-pid
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}
