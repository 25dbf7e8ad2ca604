package proxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	"fleetdrill/internal/tokens"
)

// prompt is what placing needs to know of a request; everything else passes unread.
type prompt struct {
	ids    []uint32
	model  string // empty when it is none, or not a string, which is the engine's to refuse
	salt   string
	stream bool
}

// parseCompletion reads the body of /v1/completions. Of a list of prompts the first decides where all
// of them go.
func parseCompletion(body []byte) (prompt, error) {
	var in struct {
		Model  json.RawMessage `json:"model"`
		Prompt json.RawMessage `json:"prompt"`
		Stream bool            `json:"stream"`
		Salt   string          `json:"cache_salt"`
	}
	if err := decode(body, &in); err != nil {
		return prompt{}, err
	}
	ids, err := promptIDs(in.Prompt)
	if err != nil {
		return prompt{}, err
	}
	return prompt{ids, modelName(in.Model), in.Salt, in.Stream}, nil
}

// parseChat reads the body of /v1/chat/completions.
func parseChat(body []byte) (prompt, error) {
	var in struct {
		Model    json.RawMessage      `json:"model"`
		Messages []tokens.ChatMessage `json:"messages"`
		Stream   bool                 `json:"stream"`
		Salt     string               `json:"cache_salt"`
	}
	if err := decode(body, &in); err != nil {
		return prompt{}, err
	}
	if len(in.Messages) == 0 {
		return prompt{}, badRequest("messages: at least one message is needed")
	}
	return prompt{tokens.EncodeChat(in.Messages), modelName(in.Model), in.Salt, in.Stream}, nil
}

func modelName(raw json.RawMessage) (name string) {
	if json.Unmarshal(raw, &name) != nil {
		return ""
	}
	return name
}

func decode(body []byte, into any) error {
	if !utf8.Valid(body) {
		return badRequest("the body is not valid UTF-8")
	}
	err := json.Unmarshal(body, into)
	if err == nil {
		return nil
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return badRequest(fmt.Sprintf("the body is not valid JSON at byte %d: %v", syntax.Offset, err))
	}
	var kind *json.UnmarshalTypeError
	if !errors.As(err, &kind) {
		return badRequest("the body is not a request: " + err.Error())
	}
	if kind.Field == "" {
		return badRequest("the body is not a request: it is a JSON " + kind.Value + ", not an object")
	}
	return badRequest(fmt.Sprintf("the body is not a request: %q is a JSON %s at byte %d", kind.Field, kind.Value, kind.Offset))
}

// promptIDs reads a prompt: text, token ids, or a list of either.
func promptIDs(raw json.RawMessage) ([]uint32, error) {
	raw = bytes.TrimLeft(raw, " \t\r\n")
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return nil, badRequest("prompt is missing")
	case raw[0] == '"':
		return textIDs(raw)
	case raw[0] != '[':
		return nil, badRequest("prompt must be a string, a list of token ids, or a list of either")
	}
	first := bytes.TrimLeft(raw[1:], " \t\r\n")
	switch {
	case first[0] == ']':
		return nil, badRequest("prompt is an empty list")
	case first[0] == '"' || first[0] == '[':
		var list []json.RawMessage
		if err := json.Unmarshal(raw, &list); err != nil {
			return nil, badRequest("prompt is not a list of prompts: " + err.Error())
		}
		if list[0][0] == '"' {
			return textIDs(list[0])
		}
		return listIDs(list[0])
	default:
		return listIDs(raw)
	}
}

func textIDs(raw json.RawMessage) ([]uint32, error) {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return nil, badRequest("prompt is not a string: " + err.Error())
	}
	return tokens.Encode(text), nil
}

// listIDs reads a JSON array of token ids by hand, since prompts of 100,000 ids are ordinary and the
// reflecting decoder takes milliseconds for one. The syntax was checked by the caller's decoder; what
// remains is that every element is a whole number in range.
func listIDs(raw []byte) ([]uint32, error) {
	ids := make([]uint32, 0, bytes.Count(raw, []byte{','})+1)
	value, digits := uint64(0), 0
	for i, c := range raw {
		switch {
		case c >= '0' && c <= '9':
			digits++
			if value = value*10 + uint64(c-'0'); value > math.MaxInt32 {
				return nil, badRequest(fmt.Sprintf("prompt: token id number %d is above %d", len(ids), math.MaxInt32))
			}
		case c == ',' || c == ']':
			if digits > 0 {
				ids = append(ids, uint32(value))
			}
			value, digits = 0, 0
		case c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '[' && i == 0:
		default:
			return nil, badRequest(fmt.Sprintf("prompt: token id number %d is not a whole number above or equal to zero", len(ids)))
		}
	}
	return ids, nil
}
