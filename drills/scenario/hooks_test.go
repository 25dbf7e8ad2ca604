package scenario

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"fleetdrill/internal/contract"
	"fleetdrill/mockworker/faults"
	"fleetdrill/mockworker/wire"
)

// given is a parameter as a person would write it in either place.
type given struct{ name, yaml, json string }

// drawParam draws a value for a parameter, now and then a wrong one.
func drawParam(t *rapid.T, p contract.HookParam) given {
	wrong := rapid.IntRange(0, 9).Draw(t, "wrong") == 0
	text := func(s string) given { return given{p.Name, s, strconv.Quote(s)} }
	number := func(s string) given { return given{p.Name, s, s} }
	switch p.Form {
	case contract.HookWord:
		if wrong {
			return text("sideways")
		}
		return text(rapid.SampledFrom(p.Words).Draw(t, "word"))
	case contract.HookDuration:
		if wrong {
			return text(rapid.SampledFrom([]string{"0s", (p.Longest + time.Hour).String(), "8"}).Draw(t, "length"))
		}
		return text(rapid.SampledFrom([]string{"1ms", "1.5s", "2s"}).Draw(t, "length"))
	case contract.HookWhole:
		if wrong {
			return number(rapid.SampledFrom([]string{"-1", "1.5", strconv.Itoa(int(p.Max) + 1), strconv.Itoa(int(p.Min) - 1)}).Draw(t, "number"))
		}
		return number(strconv.Itoa(rapid.IntRange(int(p.Min), int(p.Max)).Draw(t, "number")))
	case contract.HookShare:
		if wrong {
			return number(rapid.SampledFrom([]string{"0", "1.5"}).Draw(t, "share"))
		}
		return number(rapid.SampledFrom([]string{"0.25", "1"}).Draw(t, "share"))
	}
	if wrong {
		return number(fmt.Sprint(p.Max + 1))
	}
	return number(rapid.SampledFrom([]string{fmt.Sprint(max(p.Min, 0.5)), fmt.Sprint(p.Min), "0.9"}).Draw(t, "number"))
}

// TestLanguageAndEngineAgree: what the language takes the engine takes, with the same values in force, and
// what one refuses the other does too. What the language says in its own way is left out: for, and the at of
// an exit.
func TestLanguageAndEngineAgree(t *testing.T) {
	worker := faults.Worker{Ranks: 1, Events: true}
	rapid.Check(t, func(t *rapid.T) {
		h := rapid.SampledFrom(contract.Hooks).Draw(t, "hook")
		body, step := []string{`"kind":` + strconv.Quote(h.Kind)}, []string{"fault: " + h.Kind, "id: f", "target: w1", "at: steady.end", "confirm: {within: 1m}"}
		for _, p := range h.Params {
			if p.Name == "for" || h.Kind == contract.FaultExit && p.Name == "at" || rapid.IntRange(0, 2).Draw(t, "leave out "+p.Name) == 0 {
				continue
			}
			g := drawParam(t, p)
			body, step = append(body, strconv.Quote(g.name)+":"+g.json), append(step, g.name+": "+g.yaml)
		}
		if rapid.IntRange(0, 9).Draw(t, "stranger") == 0 {
			body, step = append(body, `"colour":"red"`), append(step, "colour: red")
		}
		_, engine := faults.Parse([]byte("{"+strings.Join(body, ",")+"}"), worker)
		src := base + "timeline:\n  - {" + strings.Join(step, ", ") + "}\nexpect:\n  - {id: x, over: steady.start..steady.end, always: routable(w1)}\n"
		s, err := Parse("s.yaml", []byte(src))
		if (err == nil) != (engine == nil) {
			t.Fatalf("%s\nlanguage: %v\nengine: %v", strings.Join(step, ", "), err, engine)
		}
		if err != nil {
			return
		}
		// What the language understood, sent to the engine, is understood in the same way.
		f, sent := s.Timeline[0].Fault, map[string]any{"kind": h.Kind}
		for _, p := range f.Params {
			sent[p.Name] = p.Value
			if d, ok := p.Value.(time.Duration); ok {
				sent[p.Name] = d.String()
			}
		}
		text, err := json.Marshal(sent)
		if err != nil {
			t.Fatal(err)
		}
		again, err := faults.Parse(text, worker)
		direct, _ := faults.Parse([]byte("{"+strings.Join(body, ",")+"}"), worker)
		if err != nil || again != direct {
			t.Fatalf("%s was sent as %s: %v\n%+v, want\n%+v", strings.Join(step, ", "), text, err, again, direct)
		}
	})
}

// TestEveryHookIsAFault, and every fault that an engine is armed with a hook.
func TestEveryHookIsAFault(t *testing.T) {
	var hooks, armed []string
	for _, h := range contract.Hooks {
		hooks = append(hooks, h.Kind)
	}
	for _, k := range kinds {
		if k.hook != nil {
			armed = append(armed, k.name)
			if !k.supported {
				t.Errorf("%s is not supported", k.name)
			}
		}
	}
	if !slices.Equal(hooks, armed) {
		t.Errorf("hooks %v\nfaults %v", hooks, armed)
	}
	// Each parameter of a hook can be said, except those that the language says otherwise.
	for _, k := range kinds {
		if k.hook == nil {
			continue
		}
		for _, p := range k.hook.Params {
			said := k.shape().key(p.Name).name != ""
			if !said {
				t.Errorf("%s.%s cannot be said", k.name, p.Name)
			}
		}
	}
}

// TestWires: the language knows the wires that a mock worker has.
func TestWires(t *testing.T) {
	if !slices.Equal(contract.Wires, wire.Names()) {
		t.Errorf("the language has %v, the engine %v", contract.Wires, wire.Names())
	}
}
