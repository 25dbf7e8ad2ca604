package load

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
)

// chunk is what a client needs of one JSON object of an answer: a piece of a stream or a whole answer,
// of completions or chat completions.
type chunk struct {
	token            bool // it carries output: text, content, reasoning, tool calls or token ids
	hasUsage         bool
	completionTokens int
	cachedTokens     int
	failure          string // the message of an error object, never empty for one
}

// parseChunk reads one object. It looks at the few keys that matter and steps over everything else, so a
// token costs a fraction of a microsecond; it checks the brackets and strings it steps over, not more.
func parseChunk(data []byte) (chunk, error) {
	var c chunk
	var isError bool
	var message []byte
	s := scanner{b: data}
	if s.peek() != '{' {
		return c, errors.New("not a JSON object")
	}
	err := s.object(func(key []byte) error {
		switch string(key) {
		case "choices":
			return s.each(func() error { return s.choice(&c) })
		case "usage":
			return s.usage(&c)
		case "error":
			return s.failure(&c)
		case "object": // up to vLLM 0.9 an error was flat: {"object":"error","message":...}
			raw, err := s.value()
			isError = string(raw) == `"error"`
			return err
		case "message":
			raw, err := s.value()
			message = raw
			return err
		}
		return s.skip()
	})
	if err == nil && !s.atEnd() {
		err = errors.New("more than one JSON value")
	}
	if isError && c.failure == "" {
		c.failure = text(message, "error without a message")
	}
	return c, err
}

// choice looks for output in one choice, or in the delta of one.
func (s *scanner) choice(c *chunk) error {
	return s.object(func(key []byte) error {
		switch string(key) {
		case "delta":
			return s.choice(c)
		case "text", "content", "reasoning", "reasoning_content", "token_ids", "tool_calls":
			raw, err := s.value()
			c.token = c.token || carries(raw)
			return err
		}
		return s.skip()
	})
}

// carries says whether a value is a string or an array with something in it.
func carries(raw []byte) bool {
	if len(raw) < 2 || raw[0] != '"' && raw[0] != '[' {
		return false
	}
	inside := raw[1 : len(raw)-1]
	return len(inside) > 0 && (raw[0] == '"' || len(bytes.TrimSpace(inside)) > 0)
}

func (s *scanner) usage(c *chunk) error {
	return s.object(func(key []byte) error {
		c.hasUsage = true
		switch string(key) {
		case "completion_tokens":
			return s.count(&c.completionTokens)
		case "prompt_tokens_details":
			return s.object(func(key []byte) error {
				if string(key) == "cached_tokens" {
					return s.count(&c.cachedTokens)
				}
				return s.skip()
			})
		}
		return s.skip()
	})
}

// count reads a number of tokens; anything else leaves n alone.
func (s *scanner) count(n *int) error {
	raw, err := s.value()
	if v, bad := strconv.Atoi(string(raw)); bad == nil && v >= 0 {
		*n = v
	}
	return err
}

// failure reads the value of "error": an object with a message, a string, or something unexpected.
func (s *scanner) failure(c *chunk) error {
	raw, err := s.value()
	if err != nil || string(raw) == "null" {
		return err
	}
	var o struct{ Message string }
	if json.Unmarshal(raw, &o) == nil && o.Message != "" {
		c.failure = o.Message
		return nil
	}
	c.failure = text(raw, "error without a message")
	return nil
}

// text is a JSON string's content, other JSON as it is, or otherwise for nothing.
func text(raw []byte, otherwise string) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		s = string(raw)
	}
	if s == "" {
		return otherwise
	}
	return s
}
