package faults

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
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

// Bounds of parameters: far above what a drill needs, low enough that a slip of the keyboard is refused.
const (
	maxFor   = 24 * time.Hour
	maxBy    = time.Hour
	maxCount = 1_000_000
	// MaxAhead batches are made at once, about 300 bytes each.
	MaxAhead = 100_000
	maxCode  = 255
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
	params, ok := paramsOf(&s)
	if !ok {
		return Spec{}, fmt.Errorf("kind is %q, must be one of %s", s.Kind, strings.Join(kinds(), ", "))
	}
	s.setDefaults()
	for _, p := range params {
		if err := take(given, p.name, p.read); err != nil {
			return Spec{}, err
		}
	}
	for name := range given {
		return Spec{}, fmt.Errorf("parameter %q is not known for %s: known are %s", name, s.Kind, strings.Join(names(params), ", "))
	}
	return s, s.check(w)
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
func (s *Spec) check(w Worker) error {
	if err := errors.Join(s.checkHTTP(), s.checkWire(), s.checkMachine()); err != nil {
		return err
	}
	switch {
	case s.Rank >= w.Ranks:
		return fmt.Errorf("parameter rank is %d: this worker has %d", s.Rank, w.Ranks)
	case s.touchesEvents() && !w.Events:
		return fmt.Errorf("kind is %s, but this worker publishes no events: start it with --kv-events-config", s.Kind)
	case s.Kind == contract.FaultDropBatches && s.Count == 0:
		return errors.New("parameter count is missing: how many batches to drop")
	case s.Kind == contract.FaultDelayPublisher && s.By == 0:
		return errors.New("parameter by is missing: how much later batches leave")
	case s.Kind == contract.FaultExit && s.On == OnFullReport && (s.At > 0 || s.AfterTokens > 0):
		return errors.New("parameter on is full_report: at and after_tokens say otherwise when the process exits")
	case s.Ahead > 0 && s.Socket == Keep:
		return errors.New("parameter ahead needs socket rebind: a subscriber of a socket that stays receives every batch")
	}
	if s.Socket == "" && s.Kind == contract.FaultRestartPublisher {
		s.Socket = Keep
		if s.Ahead > 0 {
			s.Socket = Rebind
		}
	}
	return nil
}

func (s *Spec) touchesEvents() bool {
	switch s.Kind {
	case contract.FaultDropBatches, contract.FaultDelayPublisher, contract.FaultMutePublisher, contract.FaultRestartPublisher:
		return true
	}
	return slices.Contains(wireKinds, s.Kind)
}

func kinds() []string {
	return slices.Concat([]string{
		contract.FaultPause, contract.FaultWedge, contract.FaultDropBatches, contract.FaultDelayPublisher,
		contract.FaultMutePublisher, contract.FaultRestartPublisher, contract.FaultExit,
	}, wireKinds, machineKinds, httpKinds)
}

// param is one parameter of a kind: how it is read into a Spec, and shown out of it; nil is not shown.
type param struct {
	name string
	read func(json.RawMessage) error
	show func() any
}

// paramsOf are the parameters of s.Kind, bound to s.
func paramsOf(s *Spec) ([]param, bool) {
	if params := httpParams(s); params != nil {
		return params, true
	}
	params := []param{whole("rank", &s.Rank, 0, 1<<20)}
	for _, more := range [][]param{wireParams(s), machineParams(s)} {
		if more != nil {
			return append(params, more...), true
		}
	}
	switch s.Kind {
	case contract.FaultPause, contract.FaultWedge, contract.FaultMutePublisher:
		params = append(params, duration("for", &s.For, maxFor))
	case contract.FaultDropBatches:
		params = append(params, whole("count", &s.Count, 1, maxCount), oneOf("replay", &s.Replay, Keep, Lost))
	case contract.FaultDelayPublisher:
		params = append(params, duration("by", &s.By, maxBy), duration("for", &s.For, maxFor))
	case contract.FaultRestartPublisher:
		params = append(params, oneOf("cache", &s.Cache, Keep, Empty), oneOf("socket", &s.Socket, Keep, Rebind),
			whole("ahead", &s.Ahead, 0, MaxAhead))
	case contract.FaultExit:
		params = append(params, whole("code", &s.Code, 0, maxCode), whole("after_tokens", &s.AfterTokens, 0, 1<<30),
			duration("at", &s.At, maxFor), oneOf("on", &s.On, OnToken, OnFullReport))
	default:
		return nil, false
	}
	return params, true
}

// setDefaults fills in what a body may leave out.
func (s *Spec) setDefaults() {
	s.setHTTPDefaults()
	s.setWireDefaults()
	s.setMachineDefaults()
	switch s.Kind {
	case contract.FaultDropBatches:
		s.Replay = Keep
	case contract.FaultRestartPublisher:
		s.Cache = Keep
	case contract.FaultExit:
		s.Code, s.On = 1, OnToken
	}
}

func names(params []param) []string {
	out := []string{"kind"}
	for _, p := range params {
		out = append(out, p.name)
	}
	return out
}

// params shows every parameter of s with its value in force.
func (s Spec) params() map[string]any {
	out := map[string]any{}
	params, _ := paramsOf(&s)
	for _, p := range params {
		if v := p.show(); v != nil {
			out[p.name] = v
		}
	}
	return out
}

// whole is a parameter that is a whole number from least to most.
func whole[T int | int64](name string, v *T, least, most T) param {
	return param{name, func(raw json.RawMessage) error {
		n, err := json.Number(raw).Int64()
		if err != nil || n < int64(least) || n > int64(most) {
			return fmt.Errorf("is %s, must be a whole number from %d to %d", raw, least, most)
		}
		*v = T(n)
		return nil
	}, func() any { return *v }}
}

// duration is a parameter like "1.5s", above 0 and at most most; 0 stands for not given.
func duration(name string, v *time.Duration, most time.Duration) param {
	return param{name, func(raw json.RawMessage) error {
		var s string
		if err := text(raw, &s); err != nil {
			return err
		}
		d, err := time.ParseDuration(s)
		if err != nil || d <= 0 || d > most {
			return fmt.Errorf("is %q, must be a duration above 0 and up to %s, such as \"8s\"", s, most)
		}
		*v = d
		return nil
	}, func() any {
		if *v == 0 {
			return nil
		}
		return v.String()
	}}
}

// oneOf is a parameter out of a list of words.
func oneOf(name string, v *string, words ...string) param {
	return param{name, func(raw json.RawMessage) error {
		var s string
		if err := text(raw, &s); err != nil {
			return err
		}
		if !slices.Contains(words, s) {
			return fmt.Errorf("is %q, must be %s", s, strings.Join(words, " or "))
		}
		*v = s
		return nil
	}, func() any { return *v }}
}

// text reads a JSON string; null is none.
func text(raw json.RawMessage, v *string) error {
	if len(raw) == 0 || raw[0] != '"' {
		return fmt.Errorf("is %s, must be a string", raw)
	}
	return json.Unmarshal(raw, v)
}
