package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fleetdrill/drills/judge"
)

func TestBoardTable(t *testing.T) {
	now := time.Unix(1000, 0)
	b := &board{rows: []*boardRow{
		{name: "engine-killed", over: true},
		{name: "engine-paused", running: 1, began: now.Add(-12 * time.Second), last: "hang: pause w1",
			tally: map[judge.Verdict]int{judge.Pass: 3, judge.Invalid: 1}},
		{name: "worker-partitioned", running: 1, began: now, last: "starting 8 workers and the gateway"},
		{name: "batches-dropped"},
	}}
	want := []string{
		"  engine-paused                3 pass, 1 invalid        12 s  hang: pause w1",
		"  worker-partitioned           first run                 0 s  starting 8 workers and the gateway",
		"  1 of 4 done, 1 waiting",
	}
	if diff := cmp.Diff(want, b.lines(now)); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	for _, r := range b.rows {
		r.over = true
	}
	if left := b.lines(now); left != nil {
		t.Errorf("a table is left when all is done: %q", left)
	}
}

// TestBoardRedraws holds that a table is taken off before anything else is printed, and that lines are
// cut so that none wraps: a wrapped line would be counted as one and leave its rest on the screen.
func TestBoardRedraws(t *testing.T) {
	var out, err bytes.Buffer
	b := &board{out: &out, err: &err, live: true, width: 60}
	row := b.row("engine-killed", false)
	row.start()
	err.Reset()
	row.say(strings.Repeat("x", 200))
	if got := err.String(); !strings.HasPrefix(got, "\x1b[2A\x1b[J") || !strings.Contains(got, "…\n") {
		t.Errorf("redrawn as %q", got)
	}
	for _, line := range strings.Split(strings.TrimPrefix(err.String(), "\x1b[2A\x1b[J"), "\n") {
		if n := len([]rune(line)); n >= 60 {
			t.Errorf("a line of %d on a terminal of 60", n)
		}
	}
	row.end(judge.Drill{Verdict: judge.Pass}, nil)
	row.done()
	err.Reset()
	b.print("PASS\n")
	if out.String() != "PASS\n" || !strings.Contains(err.String(), "\x1b[J") || b.drawn != 0 {
		t.Errorf("printed %q over %q, %d lines left", out.String(), err.String(), b.drawn)
	}
}

func TestBoardElsewherePlainLines(t *testing.T) {
	var out, err bytes.Buffer
	b := newBoard(&out, &err, false)
	row := b.row("engine-killed", true)
	row.start()
	row.say("death: kill w6")
	row.end(judge.Drill{Verdict: judge.Invalid, Seed: 7, Reason: "late"}, nil)
	if want := "engine-killed: death: kill w6\nengine-killed: run 1, seed 7: invalid late\n"; err.String() != want {
		t.Errorf("lines %q, want %q", err.String(), want)
	}
}
