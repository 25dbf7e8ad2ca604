package faults

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// runHTTP runs a command of the HTTP port; requests are named r1, r2 and so on.
func (s *story) runHTTP(t *testing.T, d *datadriven.TestData) (out string, ok bool) {
	const seed = 1
	now, n := int64(s.now), 1
	d.MaybeScanArgs(t, "n", &n)
	switch d.Cmd {
	case "health":
		h := s.set.Health(now, "/health")
		return fmt.Sprintf("fails %v, delayed by %s", h.Fail, h.Delay), true
	case "requests":
		return each(n, func(i int) string {
			return fmt.Sprint(s.set.Refuse(now, seed, fmt.Sprintf("r%d", i)))
		}), true
	case "streams":
		return each(n, func(i int) string {
			c := s.set.DrawCut(now, seed)
			if c == nil {
				return "whole"
			}
			return fmt.Sprintf("%s after %d: %v", c.How, c.After, s.set.Cut(now, c, fmt.Sprintf("r%d", i)))
		}), true
	case "load":
		id, mode := s.set.StaleLoad(now)
		return fmt.Sprintf("%q %q", id, mode), true
	case "listening":
		l := s.set.Listening(now)
		return fmt.Sprintf("%q close=%v until %s", l.Mode, l.CloseExisting, time.Duration(l.Until)), true
	case "note":
		s.set.Note(d.CmdArgs[0].Key, d.Input)
		return "ok", true
	case "exit-at":
		at, set := s.set.ExitAt(now)
		code, exit := s.set.Exit(now)
		return fmt.Sprintf("due at %s %v, exits %v with %d", time.Duration(at), set, exit, code), true
	}
	return "", false
}

func each(n int, f func(i int) string) string {
	var out []string
	for i := range n {
		out = append(out, f(i+1))
	}
	return strings.Join(out, ", ")
}
