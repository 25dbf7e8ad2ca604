package faults

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"fleetdrill/internal/contract"
)

// maxRank is above every worker's; whether a rank is there is checked later.
const maxRank = 1 << 20

// param is one parameter of the table with its place in a Spec.
type param struct {
	contract.HookParam
	at any // *int, *int64, *float64, *string or *time.Duration
}

// paramsOf are the parameters of a kind, bound to s. Hooks of the HTTP port act on the worker, whatever its
// ranks.
func paramsOf(hook contract.Hook, s *Spec) []param {
	var out []param
	if !hook.HTTP {
		out = append(out, param{contract.HookParam{Name: "rank", Form: contract.HookWhole, Max: maxRank}, &s.Rank})
	}
	places := s.places()
	for _, p := range hook.Params {
		out = append(out, param{p, places[p.Name]})
	}
	return out
}

// places is where each parameter of the table goes; a test looks for those that have none.
func (s *Spec) places() map[string]any {
	return map[string]any{
		"for": &s.For, "by": &s.By, "count": &s.Count, "first": &s.Count, "replay": &s.Replay, "cache": &s.Cache,
		"socket": &s.Socket, "ahead": &s.Ahead, "code": &s.Code, "after_tokens": &s.AfterTokens, "on": &s.On, "tier": &s.Tier,
		"mode": &s.Mode, "existing": &s.Existing, "how": &s.How, "status": &s.Status, "share": &s.Share, "every": &s.Every, "at": &s.At,
		"of": &s.Of, "field": &s.Field, "in": &s.In, "mask": &s.Mask, "end": &s.End, "after": &s.After, "steps": &s.Steps,
		"factor": &s.Factor, "jitter": &s.Jitter, "bytes_per_request": &s.BytesPerRequest,
	}
}

// setDefault gives the parameter its default. The table's defaults are right by their own forms, which a
// test checks.
func (p param) setDefault() {
	switch {
	case p.Default == "":
	case p.Form == contract.HookWord || p.Form == contract.HookDuration:
		_ = p.read(json.RawMessage(strconv.Quote(p.Default)))
	default:
		_ = p.read(json.RawMessage(p.Default))
	}
}

// read takes a value as JSON has it.
func (p param) read(raw json.RawMessage) error {
	switch p.Form {
	case contract.HookWord:
		return p.readWord(raw)
	case contract.HookDuration:
		return p.readDuration(raw)
	case contract.HookWhole:
		return p.readWhole(raw)
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	switch {
	case p.Form == contract.HookShare && (err != nil || !(f > 0 && f <= 1)):
		return fmt.Errorf("is %s, must be a number above 0 and up to 1", raw)
	case p.Form == contract.HookNumber && (err != nil || !(f >= p.Min && f <= p.Max)):
		return fmt.Errorf("is %s, must be a number from %v to %v", raw, p.Min, p.Max)
	}
	*p.at.(*float64) = f
	return nil
}

func (p param) readWhole(raw json.RawMessage) error {
	n, err := json.Number(raw).Int64()
	if err != nil || n < int64(p.Min) || n > int64(p.Max) {
		return fmt.Errorf("is %s, must be a whole number from %d to %d", raw, int64(p.Min), int64(p.Max))
	}
	switch at := p.at.(type) {
	case *int:
		*at = int(n)
	case *int64:
		*at = n
	}
	return nil
}

func (p param) readDuration(raw json.RawMessage) error {
	var s string
	if err := text(raw, &s); err != nil {
		return err
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 || d > p.Longest {
		return fmt.Errorf("is %q, must be a duration above 0 and up to %s, such as \"8s\"", s, p.Longest)
	}
	*p.at.(*time.Duration) = d
	return nil
}

func (p param) readWord(raw json.RawMessage) error {
	var s string
	if err := text(raw, &s); err != nil {
		return err
	}
	if !slices.Contains(p.Words, s) {
		return fmt.Errorf("is %q, must be %s", s, strings.Join(p.Words, " or "))
	}
	*p.at.(*string) = s
	return nil
}

// value is the value in force, of a type of contract.HookValues; nil for a parameter that was not given and
// has no default.
func (p param) value() any {
	switch at := p.at.(type) {
	case *string:
		if *at != "" {
			return *at
		}
	case *time.Duration:
		if *at != 0 {
			return *at
		}
	case *float64:
		return *at
	case *int:
		return p.whole(int64(*at))
	case *int64:
		return p.whole(*at)
	}
	return nil
}

// whole is a number unless it is a 0 that nobody can have written.
func (p param) whole(n int64) any {
	if n == 0 && p.Min > 0 {
		return nil
	}
	return n
}
