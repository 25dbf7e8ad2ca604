package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"fleetdrill/internal/badjson"
	"fleetdrill/internal/tokens"
)

// knobs are the parameters of sampling that both engines know. Tokens are drawn without a distribution, so that
// none has an effect, but what an engine refuses is refused.
type knobs struct {
	Temperature       *float64           `json:"temperature"`
	TopP              *float64           `json:"top_p"`
	TopK              *int64             `json:"top_k"`
	MinP              *float64           `json:"min_p"`
	PresencePenalty   *float64           `json:"presence_penalty"`
	FrequencyPenalty  *float64           `json:"frequency_penalty"`
	RepetitionPenalty *float64           `json:"repetition_penalty"`
	Stop              stopTexts          `json:"stop"`
	StopTokenIDs      []int64            `json:"stop_token_ids"`
	LogitBias         map[string]float64 `json:"logit_bias"`
}

// stopTexts is one text or a list of them.
type stopTexts []string

// UnmarshalJSON reads a text or a list.
func (t *stopTexts) UnmarshalJSON(b []byte) error {
	if *t = nil; string(b) == "null" {
		return nil
	}
	if b[0] == '"' {
		var one string
		err := json.Unmarshal(b, &one)
		*t = stopTexts{one}
		return err
	}
	var list []string
	if err := json.Unmarshal(b, &list); err != nil {
		return fmt.Errorf("stop must be a string or a list of strings: %w", badjson.Error(err))
	}
	*t = list
	return nil
}

// outside says whether a number is given and not from least to most.
func outside(v *float64, least, most float64) bool { return v != nil && !(*v >= least && *v <= most) }

// aboveZero is the least number that is more.
const aboveZero = math.SmallestNonzeroFloat64

// greedyBelow is the temperature below which vLLM takes the likeliest token.
const greedyBelow = 1e-5

// checkVLLM is vLLM's check of its sampling parameters, in its order.
func (k *knobs) checkVLLM(n int) *apiError {
	switch {
	case outside(k.PresencePenalty, -2, 2):
		return badRequest("", "presence_penalty must be in [-2, 2], got %s.", pyFloat(*k.PresencePenalty))
	case outside(k.FrequencyPenalty, -2, 2):
		return badRequest("", "frequency_penalty must be in [-2, 2], got %s.", pyFloat(*k.FrequencyPenalty))
	case outside(k.RepetitionPenalty, aboveZero, math.MaxFloat64):
		return badRequest("", "repetition_penalty must be greater than zero, got %s.", pyFloat(*k.RepetitionPenalty))
	case outside(k.Temperature, 0, math.MaxFloat64):
		return badRequest("temperature", "temperature must be non-negative, got %s.", pyFloat(*k.Temperature))
	case outside(k.TopP, aboveZero, 1):
		return badRequest("top_p", "top_p must be in (0, 1], got %s.", pyFloat(*k.TopP))
	case k.TopK != nil && *k.TopK < -1:
		return badRequest("", "top_k must be 0 (disable), or at least 1, got %d.", *k.TopK)
	case outside(k.MinP, 0, 1):
		return badRequest("", "min_p must be in [0, 1], got %s.", pyFloat(*k.MinP))
	case k.Temperature != nil && *k.Temperature < greedyBelow && n > 1:
		return badRequest("", "n must be 1 when using greedy sampling, got %d.", n)
	}
	for _, text := range k.Stop {
		if text == "" {
			return badRequest("", "stop cannot contain an empty string.")
		}
	}
	for _, id := range k.StopTokenIDs {
		if id < 0 || id >= tokens.Vocab {
			return badRequest("stop_token_ids", "token_id(s) [%d] in stop_token_ids contain out-of-vocab token ids. Vocabulary size: %d", id, tokens.Vocab)
		}
	}
	if id, ok := k.strangeBias(); ok {
		return badRequest("logit_bias", "token_id(s) [%s] in logit_bias contain out-of-vocab token ids. Vocabulary size: %d", id, tokens.Vocab)
	}
	return nil
}

// checkSGLang is SGLang's, least and most being the bounds of the output's length.
func (k *knobs) checkSGLang(least, most int) *apiError {
	switch {
	case outside(k.Temperature, 0, math.MaxFloat64):
		return badRequest("", "temperature must be a non-negative finite number, got %s.", pyFloat(*k.Temperature))
	case outside(k.TopP, aboveZero, 1):
		return badRequest("", "top_p must be in (0, 1], got %s.", pyFloat(*k.TopP))
	case outside(k.MinP, 0, 1):
		return badRequest("", "min_p must be in [0, 1], got %s.", pyFloat(*k.MinP))
	case k.TopK != nil && *k.TopK < 1 && *k.TopK != -1:
		return badRequest("", "top_k must be -1 (disable) or at least 1, got %d.", *k.TopK)
	case outside(k.FrequencyPenalty, -2, 2):
		return badRequest("", "frequency_penalty must be in [-2, 2], got %s.", pyFloat(*k.FrequencyPenalty))
	case outside(k.PresencePenalty, -2, 2):
		return badRequest("", "presence_penalty must be in [-2, 2], got %s.", pyFloat(*k.PresencePenalty))
	case outside(k.RepetitionPenalty, aboveZero, 2):
		return badRequest("", "repetition_penalty must be in (0, 2] (1.0 = no penalty), got %s.", pyFloat(*k.RepetitionPenalty))
	case least < 0:
		return badRequest("", "min_new_tokens must be in [0, max_new_tokens], got %d.", least)
	case most < 0:
		return badRequest("", "max_new_tokens must be at least 0, got %d.", most)
	case least > most:
		return badRequest("", "min_new_tokens must be in [0, max_new_tokens(%d)], got %d.", most, least)
	}
	if id, ok := k.strangeBias(); ok {
		return badRequest("", "logit_bias must has keys in [0, %d], got %s.", tokens.Vocab-1, id)
	}
	return nil
}

// strangeBias is a key of logit_bias that is no token id.
func (k *knobs) strangeBias() (string, bool) {
	for key := range k.LogitBias {
		if id, err := strconv.Atoi(key); err != nil || id < 0 || id >= tokens.Vocab {
			return key, true
		}
	}
	return "", false
}

// pyFloat is a number as Python prints it: 2.0 rather than 2.
func pyFloat(v float64) string {
	s := strconv.FormatFloat(v, 'g', -1, 64)
	if !strings.ContainsAny(s, ".en") {
		s += ".0"
	}
	return s
}

// tools are the keys of a chat that let it call functions. Mock engines never call one; what an engine refuses
// is refused.
type tools struct {
	Tools      json.RawMessage `json:"tools"`
	ToolChoice json.RawMessage `json:"tool_choice"`
}

func (t *tools) check() *apiError {
	var list []json.RawMessage
	if err := unmarshalGiven(t.Tools, &list); err != nil {
		return invalid("tools", "tools must be a list: %v", badjson.Error(err))
	}
	if list != nil && len(list) == 0 {
		return invalid("tools", "`tools` must not be an empty array. Either provide at least one tool or omit the field entirely.")
	}
	switch choice := string(orNull(t.ToolChoice)); {
	case choice == "null" || choice == `"none"`:
		return nil
	case list == nil:
		return invalid("tool_choice", "When using `tool_choice`, `tools` must be set.")
	case choice != `"auto"` && choice != `"required"` && choice[0] != '{':
		return invalid("tool_choice", "Invalid value for `tool_choice`: %s! Only named tools, \"none\", \"auto\" or \"required\" are supported.", strings.Trim(choice, `"`))
	}
	return nil
}

// unmarshalGiven reads a key that is kept raw. One that is not there leaves v alone, as null does, and costs
// nothing: most requests have none of them.
func unmarshalGiven(raw json.RawMessage, v any) error {
	if len(raw) == 0 {
		return nil
	}
	return json.Unmarshal(raw, v)
}

func orNull(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("null")
	}
	return raw
}

// responseFormat is what an answer is to look like. Mock engines write words whatever it says.
type responseFormat struct {
	Type       string          `json:"type"`
	JSONSchema json.RawMessage `json:"json_schema"`
}

// UnmarshalJSON reads a format.
func (f *responseFormat) UnmarshalJSON(b []byte) error {
	type plain responseFormat
	if string(b) == "null" {
		return nil
	}
	if err := json.Unmarshal(b, (*plain)(f)); err != nil {
		return err
	}
	switch f.Type {
	case "text", "json_object", "structural_tag":
		return nil
	case "json_schema":
		if isNull(f.JSONSchema) {
			//lint:ignore ST1005 these are the engine's own words
			return errors.New("When response_format type is 'json_schema', the 'json_schema' field must be provided.")
		}
		return nil
	}
	return fmt.Errorf("response_format has type %q, must be text, json_object, json_schema or structural_tag", f.Type)
}
