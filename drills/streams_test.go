package drills

import (
	"bytes"
	"strings"
	"testing"

	"fleetdrill/drills/scenario"
	"fleetdrill/drills/synth"
)

const oneDraw = `version: 1
name: draws
load:
  - {id: main, synth: {rate: 24/s, input: 256..1024, output: 64..128, heads: 8, head_tokens: 512, new_prefix: 50%}}
timeline:
  - {fault: kill, id: death, target: {pick: one}, at: steady.end + uniform(0s..2s)}
expect:
  - {id: out, after: death.effective, within: 2s, that: not routable(death.target)}
`

// drawn is what a seed draws for the fault death and the first requests of the load main.
func drawn(t *testing.T, text string, seed uint64) (victim, at string, bodies []byte) {
	t.Helper()
	s, err := scenario.Parse("draws.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewPlan(s, seed, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range p.Steps {
		if step.ID == "death" {
			victim, at = step.Target, step.At
		}
	}
	for i, l := range s.Loads {
		if l.ID != "main" {
			continue
		}
		g, err := synth.New(synthSpec(s, l, p.Loads[i].Seed))
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			r, _ := g.Next()
			bodies = append(bodies, r.Body...)
		}
	}
	return victim, at, bodies
}

// TestOneMoreDrawShiftsNothing: victims, instants and loads draw from streams of their own, so an old seed
// means what it meant when a scenario has grown.
func TestOneMoreDrawShiftsNothing(t *testing.T) {
	more := strings.NewReplacer(
		"load:\n", "load:\n  - {id: first, synth: {rate: 1/s, input: 10..20, output: 10..20}}\n",
		"timeline:\n", "timeline:\n  - {fault: stop, id: freeze, target: {pick: one}, at: steady.end + uniform(0s..9s), for: 1s}\n",
	).Replace(oneDraw)
	victims := map[string]bool{}
	for seed := range uint64(20) {
		v1, at1, b1 := drawn(t, oneDraw, seed)
		v2, at2, b2 := drawn(t, more, seed)
		if v1 != v2 || at1 != at2 {
			t.Errorf("seed %d: %s at %s became %s at %s", seed, v1, at1, v2, at2)
		}
		if !bytes.Equal(b1, b2) {
			t.Errorf("seed %d: the load sends other requests", seed)
		}
		victims[v1] = true
	}
	if len(victims) < 4 {
		t.Errorf("20 seeds chose only %v", victims)
	}
}
