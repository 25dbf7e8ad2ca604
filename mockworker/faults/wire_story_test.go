package faults

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"fleetdrill/mockworker/late"
)

// runWire runs a command of the event stream, the engine or the process.
func (s *story) runWire(t *testing.T, d *datadriven.TestData, rank int) (out string, ok bool) {
	now, n, seq, start := int64(s.now), 1, 0, 0
	kind := ""
	d.MaybeScanArgs(t, "n", &n)
	d.MaybeScanArgs(t, "seq", &seq)
	d.MaybeScanArgs(t, "start", &start)
	d.MaybeScanArgs(t, "kind", &kind)
	switch d.Cmd {
	case "twists":
		var kinds []string
		for _, tw := range s.set.Twists(now, rank) {
			kinds = append(kinds, tw.Kind)
		}
		return strings.Join(kinds, ", "), true
	case "twisted":
		for _, tw := range s.set.Twists(now, rank) {
			if tw.Kind == kind {
				s.set.Twisted(now, tw, int64(seq))
			}
		}
		return "ok", true
	case "muted": // Example: muted seq=9 n=3: what is muted, of the device and of the host, before and after
		mutes := s.set.Mutes(now, rank)
		for _, m := range mutes {
			s.set.Muted(now, m, int64(seq), n)
		}
		var out []string
		for _, m := range s.set.Mutes(now, rank) {
			out = append(out, fmt.Sprintf("removals %v, device %v, host %v", m.Removals, m.Takes("GPU"), m.Takes("CPU_PINNED")))
		}
		return strings.Join(out, "\n"), true
	case "full-report":
		code, exit := s.set.FullReport(now, rank, d.CmdArgs[0].Key)
		return fmt.Sprintf("exit %v, code %d", exit, code), true
	case "held":
		s.set.HeldRemovals(now, rank, int64(seq), int64(n))
		return "ok", true
	case "lateness":
		l := s.set.Lateness(now, rank, late.Options{Steps: 4})
		return fmt.Sprintf("%d steps, %s, a fault's %v until %s", l.Steps, l.By, l.Faulty, time.Duration(l.Until)), true
	case "replay":
		return fmt.Sprintf("%+v", s.set.Replay(now, rank, uint64(start))), true
	case "pace": // Example: pace [open=(a,b)]
		var open []string
		for _, arg := range d.CmdArgs {
			if arg.Key == "open" {
				open = arg.Vals
			}
		}
		factor, jitter := s.set.Pace(now, rank, slices.Values(open))
		return fmt.Sprintf("factor %v, jitter %v", factor, jitter), true
	case "leak":
		s.set.Leak(now, rank, d.CmdArgs[0].Key)
		return fmt.Sprintf("%d bytes held", s.set.leaked()), true
	}
	return "", false
}

// leaked is the memory that all faults hold.
func (s *Set) leaked() (n int) {
	for _, f := range s.faults {
		for _, b := range f.leaked {
			n += len(b)
		}
	}
	return n
}
