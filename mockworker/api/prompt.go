package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"fleetdrill/internal/tokens"
)

// prompt is the prompts of a completion in any of the forms the engine takes: a text, token ids, or a list
// of either.
type prompt struct {
	given   bool
	prompts [][]uint32
	// emptyText says that the prompt is "", which vLLM takes for none.
	emptyText bool
}

// UnmarshalJSON reads a prompt.
func (p *prompt) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	p.given, p.emptyText = true, string(b) == `""`
	if b[0] == '[' {
		if first := bytes.TrimLeft(b[1:], " \t\r\n")[0]; first == '"' || first == '[' {
			return p.readList(b)
		}
	}
	ids, err := onePrompt(b)
	p.prompts = [][]uint32{ids}
	return err
}

// readList reads prompt by prompt, so that a body full of empty ones costs no more than those it may have.
func (p *prompt) readList(b []byte) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	if _, err := dec.Token(); err != nil { // the bracket
		return err
	}
	p.prompts = nil // the key may stand there twice: the last one counts
	for i := 0; dec.More(); i++ {
		if i == maxChoices {
			return fmt.Errorf("a list of more than %d prompts: one request takes at most %d", maxChoices, maxChoices)
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return err
		}
		ids, err := onePrompt(raw)
		if err != nil {
			return fmt.Errorf("prompt %d: %w", i, err)
		}
		p.prompts = append(p.prompts, ids)
	}
	return nil
}

// onePrompt reads a text or a list of token ids.
func onePrompt(b []byte) ([]uint32, error) {
	switch b[0] {
	case '"':
		if bytes.IndexByte(b, '\\') < 0 { // nothing is escaped, and decode has seen that it is UTF-8
			return tokens.Encode(string(b[1 : len(b)-1])), nil
		}
		var text string
		err := json.Unmarshal(b, &text)
		return tokens.Encode(text), err
	case '[':
		return readIDs(bytes.TrimLeft(b[1:], " \t\r\n"))
	}
	return nil, errors.New("must be a string or a list of token ids")
}

// readIDs reads the ids of a list behind its bracket; b is valid JSON.
func readIDs(b []byte) ([]uint32, error) {
	ids := make([]uint32, 0, len(b)/6+1) // five digits and a comma, mostly
	for i := 0; b[i] != ']'; {
		c := b[i]
		if c == ',' || c == ' ' || c == '\n' || c == '\t' || c == '\r' {
			i++
			continue
		}
		start := i
		for id := uint64(0); ; i++ {
			d := b[i] - '0'
			if d > 9 {
				if i == start || b[i] == '.' || b[i] == 'e' || b[i] == 'E' {
					return nil, errors.New("a list of token ids must hold whole numbers from 0")
				}
				if len(ids) == cap(ids) {
					ids = slices.Grow(ids, (len(b)-start)/2+1) // what may still come: a digit and a comma each
				}
				ids = append(ids, uint32(id))
				break
			}
			if id = id*10 + uint64(d); id >= tokens.Vocab {
				return nil, fmt.Errorf("token id %s is out of vocabulary, which has %d", firstNumber(b[start:]), tokens.Vocab)
			}
		}
	}
	return ids, nil
}

// firstNumber is the number at the start of b, for an error message.
func firstNumber(b []byte) []byte {
	end := bytes.IndexAny(b, ",] \t\r\n")
	return b[:min(end, 24)]
}
