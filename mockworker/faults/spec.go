package faults

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"fleetdrill/internal/badjson"
	"fleetdrill/internal/contract"
)

// The values of Spec.Replay, Spec.Cache and Spec.Socket.
const (
	Keep   = "keep"
	Lost   = "lose"
	Empty  = "empty"
	Rebind = "rebind"
)

// The values of Spec.On.
const (
	OnToken      = "token"
	OnFullReport = "full_report"
)

// Spec is one fault to arm: checked, and with every default filled in. A field that is no parameter of
// Kind is zero.
type Spec struct {
	Kind string
	// Rank is the data-parallel rank that it acts on.
	Rank int
	// For ends it this long after it first acted; 0 leaves it until it is healed.
	For time.Duration
	// By is how much later than collected a batch leaves.
	By time.Duration
	// Count is the number of batches to drop, Replay whether the replay buffer keeps them.
	Count  int64
	Replay string
	// Cache and Socket are what a restarted publisher finds (Keep or Empty) and does (Keep or Rebind);
	// Ahead is how many batches it sends before its socket opens.
	Cache, Socket string
	Ahead         int
	// Code is the exit code, AfterTokens how many output tokens are still handed out. On is what the process
	// dies of.
	Code, AfterTokens int
	On                string
	HTTP
	Wire
	Machine
}

// Worker is what a worker can have faults in.
type Worker struct {
	Ranks int
	// Events says that it publishes any.
	Events bool
}

// Parse reads the body of POST /admin/faults: kind, rank (default 0) and the parameters of the kind. What
// is not known is refused, so that a misspelt parameter does not silently mean its default.
func Parse(body []byte, w Worker) (Spec, error) {
	given, err := object(body)
	if err != nil {
		return Spec{}, err
	}
	var s Spec
	if err := take(given, "kind", func(raw json.RawMessage) error { return text(raw, &s.Kind) }); err != nil {
		return Spec{}, err
	}
	hook, ok := contract.HookOf(s.Kind)
	if !ok {
		return Spec{}, fmt.Errorf("kind is %q, must be one of %s", s.Kind, strings.Join(kinds(), ", "))
	}
	params := paramsOf(hook, &s)
	for _, p := range params {
		p.setDefault()
		if err := take(given, p.Name, p.read); err != nil {
			return Spec{}, err
		}
	}
	for name := range given {
		return Spec{}, fmt.Errorf("parameter %q is not known for %s: known are %s", name, s.Kind, strings.Join(names(params), ", "))
	}
	return s, s.check(hook, w)
}

// object reads one JSON object and nothing behind it.
func object(body []byte) (map[string]json.RawMessage, error) {
	var given map[string]json.RawMessage
	dec := json.NewDecoder(bytes.NewReader(body))
	if err := dec.Decode(&given); err != nil {
		return nil, fmt.Errorf("reading the fault: %w", badjson.Error(err))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("reading the fault: something stands behind the JSON object")
	}
	return given, nil
}

// take reads a parameter if it was given and strikes it off.
func take(given map[string]json.RawMessage, name string, read func(json.RawMessage) error) error {
	raw, ok := given[name]
	if !ok {
		return nil
	}
	delete(given, name)
	if err := read(raw); err != nil {
		return fmt.Errorf("parameter %s: %w", name, err)
	}
	return nil
}

// check is what no single parameter tells.
func (s *Spec) check(hook contract.Hook, w Worker) error {
	if c := hook.Conflict(s.values(hook)); c.Problem != "" {
		what := "parameter"
		if len(c.Params) > 1 {
			what = "parameters"
		}
		return fmt.Errorf("%s %s %s", what, strings.Join(c.Params, " and "), c.Problem)
	}
	switch {
	case s.Rank >= w.Ranks:
		return fmt.Errorf("parameter rank is %d: this worker has %d", s.Rank, w.Ranks)
	case hook.Events && !w.Events:
		return fmt.Errorf("kind is %s, but this worker publishes no events: start it with --kv-events-config", s.Kind)
	}
	if s.Socket == "" && s.Kind == contract.FaultRestartPublisher {
		s.Socket = Keep
		if s.Ahead > 0 {
			s.Socket = Rebind
		}
	}
	return nil
}

func kinds() (out []string) {
	for _, h := range contract.Hooks {
		out = append(out, h.Kind)
	}
	return out
}

// ActsOnce says whether a kind acts in the moment it is armed, between two steps, and is done with that.
func ActsOnce(kind string) bool {
	h, _ := contract.HookOf(kind)
	return h.Ends == contract.HookOnce
}

func names(params []param) []string {
	out := []string{"kind"}
	for _, p := range params {
		out = append(out, p.Name)
	}
	return out
}

// values are the parameters of s with their values in force.
func (s *Spec) values(hook contract.Hook) contract.HookValues {
	out := contract.HookValues{}
	for _, p := range paramsOf(hook, s) {
		if v := p.value(); v != nil {
			out[p.Name] = v
		}
	}
	return out
}

// params shows every parameter of s with its value in force.
func (s Spec) params() map[string]any {
	out := map[string]any{}
	hook, _ := contract.HookOf(s.Kind)
	for name, v := range s.values(hook) {
		if d, ok := v.(time.Duration); ok {
			v = d.String()
		}
		out[name] = v
	}
	return out
}

// text reads a JSON string; null is none.
func text(raw json.RawMessage, v *string) error {
	if len(raw) == 0 || raw[0] != '"' {
		return fmt.Errorf("is %s, must be a string", raw)
	}
	return json.Unmarshal(raw, v)
}
