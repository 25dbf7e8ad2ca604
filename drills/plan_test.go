package drills

import (
	"encoding/json"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fleetdrill/drills/scenario"
	"fleetdrill/drills/synth"
	"fleetdrill/scenarios"
)

// matrix is every scenario built into the binary: the core rows and those of engines.
func matrix(t *testing.T) []*scenario.Scenario {
	t.Helper()
	names, err := fs.Glob(scenarios.FS(), "*/*.yaml")
	if err != nil || len(names) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	var out []*scenario.Scenario
	for _, name := range names {
		raw, err := fs.ReadFile(scenarios.FS(), name)
		if err != nil {
			t.Fatal(err)
		}
		s, err := scenario.Parse(name, raw)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, s)
	}
	return out
}

func planJSON(t *testing.T, s *scenario.Scenario, seed uint64) string {
	t.Helper()
	p, err := NewPlan(s, seed, nil, nil)
	if err != nil {
		t.Fatalf("%s: %v", s.Name, err)
	}
	raw, err := json.MarshalIndent(p, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestOneSeedOnePlan holds that a run is planned from its seed alone, and that the seed matters.
func TestOneSeedOnePlan(t *testing.T) {
	for _, s := range matrix(t) {
		a, b := planJSON(t, s, 11), planJSON(t, s, 11)
		if diff := cmp.Diff(a, b); diff != "" {
			t.Errorf("%s: two plans of one seed differ (-first +second):\n%s", s.Name, diff)
		}
		if planJSON(t, s, 12) == a {
			t.Errorf("%s: another seed plans the same run", s.Name)
		}
	}
}

// TestOneSeedOneLoad holds that two runs of one seed send the same bytes at the same instants.
func TestOneSeedOneLoad(t *testing.T) {
	for _, s := range matrix(t) {
		for i, l := range s.Loads {
			p, err := NewPlan(s, 11, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			spec := synthSpec(s, l, p.Loads[i].Seed)
			a, err := synth.New(spec)
			if err != nil {
				t.Fatalf("%s, load %s: %v", s.Name, l.ID, err)
			}
			b, err := synth.New(spec)
			if err != nil {
				t.Fatal(err)
			}
			for n := range 12 {
				x, _ := a.Next()
				y, _ := b.Next()
				if diff := cmp.Diff(x, y); diff != "" {
					t.Fatalf("%s, load %s, request %d differs (-first +second):\n%s", s.Name, l.ID, n, diff)
				}
			}
		}
	}
}

// TestEveryFaultOfTheMatrixHasAProof holds the table of faults to the language: what a scenario may ask
// for can be injected, and a plan says how it is proven.
func TestEveryFaultOfTheMatrixHasAProof(t *testing.T) {
	for _, s := range matrix(t) {
		p, err := NewPlan(s, 1, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range p.Steps {
			if step.fault != nil && (step.Proof == "" || step.Heal == "" || step.Target == "") {
				t.Errorf("%s: step %s lacks a proof, a heal or a target: %+v", s.Name, step.ID, step)
			}
		}
	}
}

func TestAFaultLongerThanItsBudgetIsRefused(t *testing.T) {
	for _, s := range matrix(t) {
		s.Budget.Fault = time.Second
		_, err := NewPlan(s, 1, nil, nil)
		held := false
		for _, step := range s.Timeline {
			held = held || (step.Fault != nil && step.Fault.Heal != nil && step.Fault.Heal.After > time.Second)
		}
		if (err != nil) != held {
			t.Errorf("%s: %v, want an error: %v", s.Name, err, held)
		}
	}
}

// What could never be confirmed in the fleet is refused by the plan, not found out by a run.
func TestFaultsThatCannotHappenAreRefused(t *testing.T) {
	for _, c := range []struct{ wire, fault, want string }{
		{"vllm-0.25", "fault: leak, target: w1, bytes_per_request: 83886, for: 2s", "at least 83887"},
		{"vllm-0.25", "fault: leak, target: w1, bytes_per_request: 83887, for: 2s", ""},
		{"vllm-0.25", "fault: mute_stores, target: w1, tier: host, for: 2s", "no host tier"},
		{"sglang-map", "fault: mute_removals, target: w1, tier: host, for: 2s", "no host tier"},
		{"sglang-map", "fault: mute_stores, target: w1, tier: device, for: 2s", ""},
		{"sglang-map", "fault: exit, target: w1, on: full_report", "w1 has the wire sglang-map"},
		{"sglang-map", "fault: exit, target: w1", ""},
		{"[vllm-0.28, sglang-array]", "fault: exit, target: w1, on: full_report", ""},
		{"[vllm-0.28, sglang-array]", "fault: exit, target: w2, on: full_report", "w2 has the wire sglang-array"},
		{"[vllm-0.28, sglang-array]", "fault: exit, target: {pick: one}, on: full_report", "w2 has the wire sglang-array"},
	} {
		src := "version: 1\nname: x\nfleet: {workers: 2, wire: " + c.wire + "}\n" +
			"load: [{id: main, synth: {rate: 1/s, input: 64, output: 4}}]\n" +
			"timeline: [{" + c.fault + ", id: f, at: steady.end}, {wait: settle, until: f.effective + 1s}]\n" +
			"expect: [{id: e, over: steady.end..settle.end, always: all(routable)}]\n"
		s, err := scenario.Parse("x.yaml", []byte(src))
		if err != nil {
			t.Fatalf("%s: %v", c.fault, err)
		}
		_, err = NewPlan(s, 1, nil, nil)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s, wire %s: %v; want %q", c.fault, c.wire, err, c.want)
		}
	}
}

// A plan has no gap where a scenario leaves conditions and gateway arguments out.
func TestAPlanWithoutConditions(t *testing.T) {
	s, err := scenario.Parse("x.yaml", []byte("version: 1\nname: x\nload: [{id: main, synth: {rate: 1/s, input: 64, output: 4}}]\n"+
		"expect: [{id: e, over: steady.start..steady.end, always: all(routable)}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewPlan(s, 1, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(p.String()) {
		if line != strings.TrimRight(line, " \n")+"\n" {
			t.Errorf("%q ends with a gap", line)
		}
	}
}
