package judge

import (
	"fmt"
	"slices"
	"strings"

	"fleetdrill/drills/predicate"
	"fleetdrill/drills/record"
	"fleetdrill/drills/scenario"
)

// Options of judging.
type Options struct {
	// Strict turns a borderline decision into unknown.
	Strict bool
}

// Judge decides every expectation of a scenario over a record, and the run as a whole. RunDir of the
// result is left to the caller, who knows where the record lies.
func Judge(s *scenario.Scenario, rec *record.Record, o Options) Drill {
	j := &judging{s: s, rec: rec, env: predicate.NewEnv(rec), o: o, results: map[string]Result{}}
	d := Drill{Name: s.Name, Topology: s.Topology, Place: s.Place, Target: s.Gateway.Target, Runs: 1, Seed: rec.Seed,
		Expectations: []Result{}, Faults: append([]record.Fault{}, rec.Faults...)}
	for _, x := range s.Expect {
		d.Expectations = append(d.Expectations, j.expectation(x))
	}
	d.Gates = j.gates()
	d.Verdict, d.Reason = decide(d.Gates, d.Expectations)
	if d.Verdict == Pass {
		d.Passed = 1
	}
	d.Wilson95Low = Wilson95Low(d.Passed, d.Runs)
	return d
}

// judging is the state of one Judge call.
type judging struct {
	s       *scenario.Scenario
	rec     *record.Record
	env     *predicate.Env
	o       Options
	results map[string]Result
}

// expectation decides one rule. Expectations only refer to those above them, so one pass suffices.
func (j *judging) expectation(x scenario.Expectation) Result {
	r, ready := j.prerequisites(x)
	if ready {
		r = j.operator(x)
	}
	r.ID, r.Rule = x.ID, x.Rule()
	j.results[x.ID] = r
	return r
}

// operator decides a rule whose marks have all come. A window is checked before its rule: an empty one
// would make every `always` true.
func (j *judging) operator(x scenario.Expectation) Result {
	if x.Op == scenario.OpAfter {
		return j.after(x)
	}
	w, ok := j.window(x.Over)
	if !ok {
		return Result{Verdict: Invalid, FromNs: w.from, ToNs: w.to,
			Sentence: fmt.Sprintf("Vacuous: the window %s was empty in this run.", x.Over)}
	}
	switch x.Op {
	case scenario.OpThat:
		return j.that(x, w)
	case scenario.OpAtLeastOnce:
		return j.atLeastOnce(x, w)
	}
	return j.always(x, w)
}

// prerequisites looks for marks that never came. If another expectation is to blame, this one is skipped;
// otherwise nothing can be said about it and the run is invalid.
func (j *judging) prerequisites(x scenario.Expectation) (Result, bool) {
	for _, name := range marksOf(x) {
		if _, ok := j.env.Mark(predicate.Mark{Name: name}); ok {
			continue
		}
		id, isSeen := strings.CutSuffix(name, ".seen")
		if r, judged := j.results[id]; isSeen && judged {
			if r.Verdict == Unknown || r.Verdict == Invalid {
				return Result{Verdict: r.Verdict, Sentence: fmt.Sprintf("Needs %s, which is %s.", id, r.Verdict)}, false
			}
			return Result{Verdict: Skipped, Sentence: fmt.Sprintf("skipped (needs %s)", id)}, false
		}
		return Result{Verdict: Invalid, Sentence: fmt.Sprintf("The mark %s never came.", name)}, false
	}
	return Result{}, true
}

// marksOf lists the marks that a rule cannot be decided without.
func marksOf(x scenario.Expectation) []string {
	var out []string
	for _, m := range []predicate.Mark{x.After, x.Over.From, x.Over.To} {
		if !m.IsZero() {
			out = append(out, m.Name)
		}
	}
	return append(out, x.That.Marks()...)
}

// gates are the runner's, one per fault of the timeline that the runner left none for, and one for holes in
// deciding windows.
func (j *judging) gates() []record.Gate {
	gates := append([]record.Gate{}, j.rec.Gates...)
	has := func(name string) bool {
		return slices.ContainsFunc(gates, func(g record.Gate) bool { return g.Name == name })
	}
	for _, st := range j.s.Timeline {
		if st.Fault != nil && !has(faultGate+st.Fault.ID) {
			gates = append(gates, j.faultGate(st.Fault))
		}
	}
	if !has("steady") {
		_, ok := j.env.Mark(predicate.Mark{Name: "steady.end"})
		gates = append(gates, record.Gate{Name: "steady", OK: ok, Detail: "judged by the mark steady.end"})
	}
	for _, x := range j.s.Expect {
		if j.results[x.ID].Hole {
			gates = append(gates, record.Gate{Name: "no hole in " + x.ID, Detail: "a gap between samples was longer than " + j.seconds(j.rec.MaxGapNs)})
		}
	}
	return gates
}

// faultGate is the prefix of the gates that say whether a fault happened.
const faultGate = "fault "

// faultGate holds when the lab saw the fault act; the newest evidence says how.
func (j *judging) faultGate(f *scenario.Fault) record.Gate {
	g := record.Gate{Name: faultGate + f.ID, Detail: "it was never injected"}
	for _, r := range j.rec.Faults {
		if r.ID != f.ID {
			continue
		}
		g.OK, g.Detail = r.Confirmed, r.Error
		if n := len(r.Evidence); r.Confirmed && n > 0 {
			g.Detail = r.Evidence[n-1].What
		}
	}
	return g
}

// vital reports whether a gate is one of those without which a failed expectation means nothing: the fault
// happened, the fleet was steady, the load was sent on time.
func vital(g record.Gate) bool {
	return strings.HasPrefix(g.Name, faultGate) || g.Name == "steady" || g.Name == "generator"
}

// decide is the verdict of a run. Within a run fail beats invalid once the vital gates hold: what was seen
// to be wrong stays wrong whatever else could not be seen.
func decide(gates []record.Gate, results []Result) (Verdict, string) {
	var broken, vitalBroken []string
	for _, g := range gates {
		if g.OK {
			continue
		}
		line := fmt.Sprintf("gate %q is broken: %s", g.Name, g.Detail)
		broken = append(broken, line)
		if vital(g) {
			vitalBroken = append(vitalBroken, line)
		}
	}
	if len(vitalBroken) > 0 {
		return Invalid, vitalBroken[0]
	}
	if r, ok := firstWith(results, Fail); ok {
		return Fail, r.Sentence
	}
	if len(broken) > 0 {
		return Invalid, broken[0]
	}
	for _, v := range []Verdict{Invalid, Unknown} {
		if r, ok := firstWith(results, v); ok {
			return v, r.ID + ": " + r.Sentence
		}
	}
	return Pass, ""
}

func firstWith(results []Result, v Verdict) (Result, bool) {
	i := slices.IndexFunc(results, func(r Result) bool { return r.Verdict == v })
	if i < 0 {
		return Result{}, false
	}
	return results[i], true
}
