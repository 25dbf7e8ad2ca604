package live

import (
	"encoding/json"
	"fmt"
	"strconv"

	"fleetdrill/replayer/load"
	"fleetdrill/replayer/plan"
)

// maxTokenText is the longest text of a token id with its comma, in bytes.
const maxTokenText = 7

// source makes the bodies of a plan's requests, each when the load asks for it: a body is some 90 KB.
type source struct {
	rest  []plan.Request
	model string // as JSON, with its key and comma; empty leaves it out
	ids   []uint32
}

func newSource(p *plan.Plan, model string) (*source, error) {
	s := &source{rest: p.Requests}
	if model != "" {
		name, err := json.Marshal(model)
		if err != nil {
			return nil, fmt.Errorf("model %q: %w", model, err)
		}
		s.model = `"model":` + string(name) + ","
	}
	return s, nil
}

// Next is the next request of the plan.
func (s *source) Next() (load.Request, bool) {
	if len(s.rest) == 0 {
		return load.Request{}, false
	}
	q := &s.rest[0]
	s.rest = s.rest[1:]
	s.ids = q.Tokens(s.ids[:0])
	return load.Request{
		OffsetNs: q.OffsetNs, ID: q.ID, Path: "/v1/completions", Body: s.body(q.MaxTokens),
		PromptTokens: q.PromptTokens, MaxTokens: q.MaxTokens, Head: -1,
	}, true
}

// body is an OpenAI completions request for s.ids. The engine must not stop early, or an answer would have
// another length than its row; usage comes with the last chunk.
func (s *source) body(maxTokens int) []byte {
	b := make([]byte, 0, len(s.ids)*maxTokenText+len(s.model)+160)
	b = append(append(append(b, '{'), s.model...), `"prompt":[`...)
	for i, id := range s.ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, uint64(id), 10)
	}
	b = strconv.AppendInt(append(b, `],"max_tokens":`...), int64(maxTokens), 10)
	return append(b, `,"ignore_eos":true,"temperature":0,"stream":true,"stream_options":{"include_usage":true}}`...)
}
