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
			p("fault %s %s target %+v when [%v] from [%v] within %v confirm %v heal %+v", f.Kind, f.ID, f.Target, f.At.When, f.At.From, f.At.Within, f.Confirm.Within, f.Heal)
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
