package drills

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"fleetdrill/drills/predicate"
	"fleetdrill/drills/scenario"
	"fleetdrill/drills/synth"
	"fleetdrill/internal/contract"
	"fleetdrill/internal/rng"
)

// Plan is what a run will do, drawn from its seed before anything starts: plan.json. Two plans of one
// scenario and seed are equal.
type Plan struct {
	Drill     string   `json:"drill"`
	Seed      uint64   `json:"seed"`
	Topology  string   `json:"topology"`
	Place     string   `json:"place"`
	Target    string   `json:"target"`
	Workers   int      `json:"workers"`
	Profile   string   `json:"profile"`
	KVBlocks  int      `json:"kv_blocks"`
	BlockSize int      `json:"block_size"`
	Wires     []string `json:"wires,omitempty"`
	Gateway   []string `json:"gateway_args"`
	// Handicaps are switched on when the fleet is steady, NoFault leaves the injections out: the legs of a
	// proof, kept so that a stored leg can be run again as it was.
	Handicaps []string      `json:"handicaps,omitempty"`
	NoFault   bool          `json:"no_fault,omitempty"`
	PeriodNs  int64         `json:"period_ns"`
	MaxGapNs  int64         `json:"max_gap_ns"`
	Steady    PlannedSteady `json:"steady"`
	Loads     []PlannedLoad `json:"loads"`
	Steps     []PlannedStep `json:"timeline"`
	Expect    []PlannedRule `json:"expect"`
}

// PlannedSteady is the state that must hold before the timeline begins.
type PlannedSteady struct {
	HoldNs    int64    `json:"hold_ns"`
	TimeoutNs int64    `json:"timeout_ns"`
	Require   []string `json:"require"`
}

// PlannedLoad is one load with its own seed. Utilisation is prefill and decode time per second and
// worker, without the fixed cost of a step.
type PlannedLoad struct {
	ID          string  `json:"id"`
	To          string  `json:"to"`
	Seed        uint64  `json:"seed"`
	Rate        float64 `json:"rate"`
	Utilisation float64 `json:"utilisation"`
	// Start and Stop are marks; empty means with the run.
	Start string `json:"start,omitempty"`
	Stop  string `json:"stop,omitempty"`
}

// PlannedStep is one step of the timeline: a fault with its drawn victim and instant, or a wait.
type PlannedStep struct {
	ID     string   `json:"id"`
	Kind   string   `json:"kind"` // a fault kind, or "wait"
	Target string   `json:"target,omitempty"`
	Params string   `json:"params,omitempty"`
	At     string   `json:"at,omitempty"`
	When   string   `json:"when,omitempty"`
	Until  string   `json:"until,omitempty"`
	Heal   string   `json:"heal,omitempty"`
	Proof  string   `json:"proof,omitempty"`
	Marks  []string `json:"marks"`

	fault *scenario.Fault
	wait  *scenario.Wait
	// from is the fault's mark with its random offsets drawn.
	from predicate.Mark
}

// PlannedRule is one expectation and the marks it waits for.
type PlannedRule struct {
	ID    string   `json:"id"`
	Rule  string   `json:"rule"`
	Marks []string `json:"marks"`
}

// maxUtilisation is the load above which a drill measures queueing rather than routing; a load may say
// `overload: true`.
const maxUtilisation = 0.6

// Timings looks up the step-time coefficients of an engine profile.
type Timings func(profile string) (synth.Timing, error)

// NewPlan draws a run. timings may be nil, then utilisation is not computed.
func NewPlan(s *scenario.Scenario, seed uint64, gatewayArgs []string, timings Timings) (*Plan, error) {
	p := &Plan{Drill: s.Name, Seed: seed, Topology: s.Topology, Place: s.Place, Target: s.Gateway.Target,
		Workers: s.Fleet.Workers, Profile: s.Fleet.Profile, KVBlocks: s.Fleet.KVBlocks, BlockSize: s.Fleet.BlockSize, Wires: s.Fleet.Wires,
		Gateway:  append(append([]string(nil), s.Gateway.Args...), gatewayArgs...),
		PeriodNs: int64(s.Observe.Period), MaxGapNs: int64(s.Observe.MaxGap),
		Steady: PlannedSteady{HoldNs: int64(s.Steady.Hold), TimeoutNs: int64(s.Steady.Timeout)}}
	for _, e := range s.Steady.Require {
		p.Steady.Require = append(p.Steady.Require, e.String())
	}
	for _, l := range s.Loads {
		planned, err := planLoad(s, l, seed, timings)
		if err != nil {
			return nil, err
		}
		p.Loads = append(p.Loads, planned)
	}
	for _, step := range s.Timeline {
		planned, err := planStep(step, s.Fleet, seed, s.Budget.Fault)
		if err != nil {
			return nil, err
		}
		p.Steps = append(p.Steps, planned)
	}
	for _, e := range s.Expect {
		p.Expect = append(p.Expect, PlannedRule{ID: e.ID, Rule: e.Rule(), Marks: marksOf(e)})
	}
	return p, nil
}

func planLoad(s *scenario.Scenario, l scenario.Load, seed uint64, timings Timings) (PlannedLoad, error) {
	out := PlannedLoad{ID: l.ID, To: l.To, Rate: l.Synth.Rate, Seed: l.Seed.Value}
	if !l.Start.IsZero() {
		out.Start = l.Start.String()
	}
	if !l.Stop.IsZero() {
		out.Stop = l.Stop.String()
	}
	if l.Seed.Run {
		// The generator draws from sub-streams named after the load, except for the heads: loads of one
		// run share those, so that one load finds warm what another has sent.
		out.Seed = seed
	}
	if timings == nil {
		return out, nil
	}
	t, err := timings(s.Fleet.Profile)
	if err != nil {
		return out, err
	}
	out.Utilisation = synth.Utilisation(synthSpec(s, l, out.Seed), t, s.Fleet.Workers)
	if out.Utilisation > maxUtilisation && !l.Overload {
		return out, fmt.Errorf("load %s keeps each worker %.0f %% busy, above %.0f %%: lower its rate, add workers, or say `overload: true`",
			l.ID, 100*out.Utilisation, 100*maxUtilisation)
	}
	return out, nil
}

func planStep(step scenario.Step, fleet scenario.Fleet, seed uint64, longest time.Duration) (PlannedStep, error) {
	if w := step.Wait; w != nil {
		return PlannedStep{ID: w.ID, Kind: "wait", Until: w.Until.String(), Marks: []string{w.ID + ".start", w.ID + ".end"}, wait: w}, nil
	}
	f := step.Fault
	kind, err := kindOf(f.Kind)
	if err == nil {
		err = errors.Join(withinBudget(f, longest), canHappen(f, fleet))
	}
	if err != nil {
		return PlannedStep{}, err
	}
	target := f.Target.Worker
	if f.Target.Pick == "one" {
		target = "w" + strconv.Itoa(1+rng.Stream(seed, "victim:"+f.ID).IntN(fleet.Workers))
	}
	phase := rng.Stream(seed, "phase:"+f.ID)
	from := f.At.From.Draw(func(lo, hi time.Duration) time.Duration {
		return lo + time.Duration(phase.Int64N(int64(hi-lo)+1))
	})
	p := PlannedStep{ID: f.ID, Kind: f.Kind, Target: target, Params: f.Params.String(), At: from.String(), Heal: healText(f, kind), Proof: kind.proof,
		Marks: []string{f.ID + ".inject", f.ID + ".effective"}, fault: f, from: from}
	if f.At.When != nil {
		p.When = f.At.When.String()
	}
	if f.Heal != nil {
		p.Marks = append(p.Marks, f.ID+".heal", f.ID+".healed")
	} else if f.SelfHeals() {
		p.Marks = append(p.Marks, f.ID+".healed")
	}
	return p, nil
}

// withinBudget refuses a fault that may be in force for longer than the scenario's budget; 0 is no bound.
func withinBudget(f *scenario.Fault, longest time.Duration) error {
	if longest == 0 || f.Heal == nil {
		return nil
	}
	if length := max(f.Heal.After, f.Heal.Timeout); length > longest {
		return fmt.Errorf("fault %s may last %v, longer than its budget of %v", f.ID, length, longest)
	}
	return nil
}

// canHappen refuses a fault that acts on nothing in this fleet, or on too little to be seen: its run would
// only tell after a while that nothing was confirmed.
func canHappen(f *scenario.Fault, fleet scenario.Fleet) error {
	each := f.Params.Whole("bytes_per_request")
	switch {
	case f.Kind == contract.FaultLeak && each < leakLeast:
		return fmt.Errorf("fault %s: a leak of %d bytes per request cannot be told from garbage: at least %d", f.ID, each, leakLeast)
	case (f.Kind == contract.FaultMuteStores || f.Kind == contract.FaultMuteRemovals) && f.Params.Word("tier") == "host":
		return fmt.Errorf("fault %s: the engines of a drill have no host tier", f.ID)
	case f.Kind != contract.FaultExit || f.Params.Word("on") != "full_report":
		return nil
	}
	for i := range fleet.Workers {
		id := "w" + strconv.Itoa(i+1)
		if hit := f.Target.Worker == "" || f.Target.Worker == id; !hit || len(fleet.Wires) == 0 {
			continue
		}
		if wire := fleet.Wires[i%len(fleet.Wires)]; strings.HasPrefix(wire, "sglang") {
			return fmt.Errorf("fault %s: %s has the wire %s, and an SGLang engine is never asked for a full report", f.ID, id, wire)
		}
	}
	return nil
}

// healText says how a fault ends.
func healText(f *scenario.Fault, k faultKind) string {
	switch {
	case k.permanent:
		return "never"
	case f.SelfHeals():
		return "by itself"
	case f.Heal == nil:
		return "at the end of the run"
	case f.Heal.When != nil:
		return fmt.Sprintf("when %s, within %v", f.Heal.When, f.Heal.Timeout)
	}
	return fmt.Sprintf("after %v", f.Heal.After)
}

// markNamed is a mark without offsets.
func markNamed(name string) predicate.Mark { return predicate.Mark{Name: name} }

// synthSpec is the generator's form of a scenario's load.
func synthSpec(s *scenario.Scenario, l scenario.Load, seed uint64) synth.Spec {
	return synth.Spec{Name: l.ID, Rate: l.Synth.Rate, Input: synth.Range(l.Synth.Input), Output: synth.Range(l.Synth.Output),
		Heads: l.Synth.Heads, HeadTokens: l.Synth.HeadTokens, NewPrefix: l.Synth.NewPrefix, HitsOnly: l.Synth.HitsOnly, Trickle: l.Synth.Trickle,
		BlockSize: s.Fleet.BlockSize, Seed: seed}
}

// nothingRequired stands for the conditions of a steady state that has none.
const nothingRequired = "no condition"

// marksOf are the marks that an expectation waits for.
func marksOf(e scenario.Expectation) []string {
	var out []string
	for _, m := range []predicate.Mark{e.After, e.Over.From, e.Over.To} {
		if !m.IsZero() {
			out = append(out, m.Name)
		}
	}
	return append(out, e.That.Marks()...)
}

// targets maps each fault to its worker, for predicates that say death.target.
func (p *Plan) targets() map[string]string {
	out := map[string]string{}
	for _, s := range p.Steps {
		if s.fault != nil {
			out[s.ID] = s.Target
		}
	}
	return out
}

// workerIDs are w1..wN.
func (p *Plan) workerIDs() []string {
	ids := make([]string, p.Workers)
	for i := range ids {
		ids[i] = "w" + strconv.Itoa(i+1)
	}
	return ids
}

// span says from when to when a load runs, empty for the whole run.
func (l PlannedLoad) span() (s string) {
	if l.Start != "" {
		s += ", from " + l.Start
	}
	if l.Stop != "" {
		s += ", until " + l.Stop
	}
	return s
}

// String prints the plan for people.
func (p *Plan) String() string {
	var b strings.Builder
	wires := ""
	if len(p.Wires) > 0 {
		wires = ", wire " + strings.Join(p.Wires, " and ")
	}
	fmt.Fprintf(&b, "%s, seed %d: %d workers (profile %s, %d blocks of %d tokens%s), topology %s, gateway %s\n",
		p.Drill, p.Seed, p.Workers, p.Profile, p.KVBlocks, p.BlockSize, wires, p.Topology, strings.Join(append([]string{p.Target}, p.Gateway...), " "))
	for _, l := range p.Loads {
		fmt.Fprintf(&b, "  load    %-18s %g requests/s to %s, utilisation %.2f per worker, seed %d%s\n", l.ID, l.Rate, l.To, l.Utilisation, l.Seed, l.span())
	}
	fmt.Fprintf(&b, "  steady  %v within %v of: %s\n", time.Duration(p.Steady.HoldNs), time.Duration(p.Steady.TimeoutNs), cmp.Or(strings.Join(p.Steady.Require, ", "), nothingRequired))
	for _, s := range p.Steps {
		if s.wait != nil {
			fmt.Fprintf(&b, "  wait    %-18s until %s\n", s.ID, s.Until)
			continue
		}
		fmt.Fprintf(&b, "  fault   %-18s %s %s at %s", s.ID, s.Kind, s.Target, s.At)
		if s.When != "" {
			fmt.Fprintf(&b, " when %s", s.When)
		}
		if s.Params != "" {
			fmt.Fprintf(&b, " (%s)", s.Params)
		}
		fmt.Fprintf(&b, "; heals %s\n          %-18s proof: %s\n", s.Heal, "", s.Proof)
	}
	for _, e := range p.Expect {
		fmt.Fprintf(&b, "  expect  %-18s %s\n          %-18s needs %s\n", e.ID, e.Rule, "", strings.Join(e.Marks, ", "))
	}
	return b.String()
}
