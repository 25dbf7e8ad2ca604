package faults

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// TestStories runs the stories in testdata. Each begins with a paragraph saying what it shows.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &story{set: New()}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			return s.run(t, d)
		})
	})
}

// story is a worker of two ranks, at some time since its start.
type story struct {
	set *Set
	now time.Duration
}

func (s *story) run(t *testing.T, d *datadriven.TestData) string {
	now, rank := int64(s.now), 0
	d.MaybeScanArgs(t, "rank", &rank)
	switch d.Cmd {
	case "arm":
		return s.arm(d.Input)
	case "heal":
		v, ok := s.set.Heal(now, d.CmdArgs[0].Key)
		if !ok {
			return "no such fault"
		}
		return v.State
	case "wait":
		step, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			t.Fatal(err)
		}
		s.now += step
		return "it is " + s.now.String()
	case "list":
		return s.list()
	case "frozen":
		return s.frozen(t, d, rank)
	case "due":
		var collected string
		d.ScanArgs(t, "collected", &collected)
		at, err := time.ParseDuration(collected)
		if err != nil {
			t.Fatal(err)
		}
		return time.Duration(s.set.Due(now, rank, int64(at))).String()
	case "batch":
		return s.batch(t, d, rank)
	case "token":
		code, exit := s.set.Token(now, rank)
		return fmt.Sprintf("exit %v, code %d", exit, code)
	case "begin":
		return fmt.Sprint(s.set.Begin(now, d.CmdArgs[0].Key))
	case "finish":
		s.set.Finish(d.CmdArgs[0].Key, d.Input)
		return "ok"
	}
	if out, ok := s.runHTTP(t, d); ok {
		return out
	}
	if out, ok := s.runWire(t, d, rank); ok {
		return out
	}
	t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
	return ""
}

func (s *story) arm(body string) string {
	sp, err := Parse([]byte(body), Worker{Ranks: 2, Events: true})
	if err != nil {
		return err.Error()
	}
	id, err := s.set.Arm(int64(s.now), sp)
	if errors.Is(err, ErrConflict) {
		return "conflict: " + err.Error()
	}
	return id
}

func (s *story) list() string {
	var b strings.Builder
	for _, v := range s.set.List(int64(s.now)) {
		fmt.Fprintf(&b, "%s %s %v: %s", v.ID, v.Kind, v.Params, v.State)
		if v.Acted > 0 {
			fmt.Fprintf(&b, ", %d times since %s on %s", v.Acted, time.Duration(v.FirstActedMonoNs), strings.Join(v.Evidence, ", "))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// Example: frozen [rank=1] [open=(a,b)]
func (s *story) frozen(t *testing.T, d *datadriven.TestData, rank int) string {
	var open []string
	for _, arg := range d.CmdArgs {
		if arg.Key == "open" {
			open = arg.Vals
		}
	}
	f := s.set.Frozen(int64(s.now), rank, slices.Values(open))
	if !f.On {
		return "steps"
	}
	out := "frozen"
	if f.Deaf {
		out += " and deaf"
	}
	if f.Until > 0 {
		out += " until " + time.Duration(f.Until).String()
	}
	return out
}

// Example: batch seq=40 [n=3] [rank=1]; the numbers go on only for fates that use them up.
func (s *story) batch(t *testing.T, d *datadriven.TestData, rank int) string {
	seq, n := 0, 1
	d.ScanArgs(t, "seq", &seq)
	d.MaybeScanArgs(t, "n", &n)
	var out []string
	for range n {
		fate := s.set.Batch(int64(s.now), rank, int64(seq))
		out = append(out, fmt.Sprintf("%d %s", seq, []string{"sent", "hidden", "lost", "muted"}[fate]))
		if fate != Mute {
			seq++
		}
	}
	return strings.Join(out, ", ")
}
