package scenario

import (
	"fmt"
	"strings"
)

// dump prints a scenario as the runner will understand it, one fact a line.
func dump(s *Scenario) string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p("%s: %s", s.Name, s.Summary)
	p("topology %s, place %s, tags %v, control %v", s.Topology, s.Place, s.Tags, s.Control)
	p("fleet %+v", s.Fleet)
	p("gateway %+v", s.Gateway)
	for _, l := range s.Loads {
		p("load %s to %s: %+v seed %+v start %q stop %q", l.ID, l.To, l.Synth, l.Seed, l.Start, l.Stop)
	}
	p("observe %v max gap %v", s.Observe.Period, s.Observe.MaxGap)
	p("steady %v of %v: %v", s.Steady.Hold, s.Steady.Timeout, s.Steady.Require)
	for _, st := range s.Timeline {
		if f := st.Fault; f != nil {
			p("fault %s %s target %+v when [%v] from [%v] within %v confirm %v%s%s", f.Kind, f.ID, f.Target, f.At.When, f.At.From, f.At.Within, f.Confirm.Within,
				dumpParams(f.Params), dumpHeal(f))
		}
		if w := st.Wait; w != nil {
			p("wait %s until %v", w.ID, w.Until)
		}
	}
	for _, x := range s.Expect {
		p("expect %s (%s): %s", x.ID, x.Op, x.Rule())
	}
	p("repeat %+v", s.Repeat)
	return b.String()
}

// dumpParams shows the parameters that are set.
func dumpParams(p Params) string {
	if len(p) == 0 {
		return ""
	}
	return " params " + p.String()
}

func dumpHeal(f *Fault) string {
	switch h := f.Heal; {
	case f.SelfHeals():
		return " heals itself"
	case h == nil:
		return ""
	case h.When != nil:
		return fmt.Sprintf(" heal when [%v] within %v", h.When, h.Timeout)
	default:
		return fmt.Sprintf(" heal after %v", h.After)
	}
}
