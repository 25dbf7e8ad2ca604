package api

import (
	"slices"
	"strconv"
	"time"

	"fleetdrill/internal/tokens"
	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/loop"
)

// sglangWriter formats the answer to one request in SGLang's shapes: a chunk of /generate repeats the whole
// output so far, one of the OpenAI routes has the new token.
type sglangWriter struct {
	s       *Server
	j       *sglangJob
	head    []byte // what documents of the OpenAI routes begin with, up to choices
	choices []choice
	told    []sglangTold // log probabilities, on /generate
	open    int          // choices that have not ended
}

var _ formatter = (*sglangWriter)(nil)

func newSGLangWriter(s *Server, j *sglangJob) *sglangWriter {
	w := &sglangWriter{s: s, j: j, open: len(j.reqs), choices: make([]choice, len(j.reqs))}
	if j.flavour == native {
		w.told = make([]sglangTold, len(j.reqs))
		return w
	}
	object := completionObject
	if j.flavour == chat {
		object = chatObject
		if j.stream {
			object = chatChunkObject
		}
	}
	w.head = appendQuoted(append(w.head, `{"id":`...), j.id)
	w.head = append(append(append(w.head, `,"object":"`...), object...), `","created":`...)
	w.head = appendInt(w.head, int(j.started.Unix()))
	w.head = append(appendQuoted(append(w.head, `,"model":`...), j.model), ',')
	return w
}

func (w *sglangWriter) ended(i int) bool { return w.choices[i].ended }
func (w *sglangWriter) allEnded() bool   { return w.open == 0 }
func (w *sglangWriter) request() string  { return w.j.id }

func appendInt(b []byte, n int) []byte { return strconv.AppendInt(b, int64(n), 10) }

// chunks implements formatter.
func (w *sglangWriter) chunks(b []byte, i int, ids []uint32, state loop.State) []byte {
	c := &w.choices[i]
	c.state = state
	if w.j.reqs[i].PrefillOnly {
		ids = nil
	}
	if state.Err != nil {
		c.ended = true
		w.open = 0 // nothing follows
		b = append(append(append(b, chunkStart...), engineError(state.Err).sglangBody(native)...), "\n\n"...)
		return append(b, doneChunk...)
	}
	for at, id := range ids {
		finish := ""
		if state.Done && at == len(ids)-1 {
			finish = state.Finish
		}
		b = w.chunk(b, i, finish, id)
	}
	if !state.Done {
		return b
	}
	if len(ids) == 0 { // aborted: the end comes without a token
		b = w.chunk(b, i, state.Finish)
	}
	c.ended = true
	if w.open--; w.open == 0 {
		if w.j.usage {
			b = append(append(append(b, chunkStart...), w.head...), `"choices":[],"usage":`...)
			b = append(w.usage(b), "}\n\n"...)
		}
		b = append(b, doneChunk...)
	}
	return b
}

// chunk appends one event with at most one new token.
func (w *sglangWriter) chunk(b []byte, i int, finish string, id ...uint32) []byte {
	c := &w.choices[i]
	first := c.sent == 0
	c.sent += len(id)
	switch w.j.flavour {
	case native:
		c.ids = append(c.ids, id...)
		return append(w.result(append(b, chunkStart...), i, finish), "\n\n"...)
	case completion:
		b = append(append(append(b, chunkStart...), w.head...), `"choices":[{"index":0,"text":"`...)
		b = append(tokens.AppendText(b, id...), `","logprobs":null,"finish_reason":`...) // words: nothing to escape
		return w.chunkEnd(w.openAIFinish(b, finish))
	}
	if first {
		b = w.delta(b, `"assistant"`, nil, "")
	}
	if len(id) > 0 {
		b = w.delta(b, "null", id, "")
	}
	if finish != "" { // in a chunk of its own
		b = w.delta(b, "null", nil, finish)
	}
	return b
}

// delta appends one chunk of a chat.
func (w *sglangWriter) delta(b []byte, role string, id []uint32, finish string) []byte {
	b = append(append(append(b, chunkStart...), w.head...), `"choices":[{"index":0,"delta":{"role":`...)
	b = append(append(b, role...), `,"content":`...)
	if finish == "" {
		b = append(tokens.AppendText(append(b, '"'), id...), '"')
	} else {
		b = append(b, "null"...)
	}
	b = append(b, `,"reasoning_content":null,"tool_calls":null},"logprobs":null,"finish_reason":`...)
	return w.chunkEnd(w.openAIFinish(b, finish))
}

// openAIFinish ends a choice.
func (w *sglangWriter) openAIFinish(b []byte, finish string) []byte {
	return append(appendFinish(b, finish), `,"matched_stop":null}]`...)
}

func (w *sglangWriter) chunkEnd(b []byte) []byte {
	b = append(b, `,"usage":`...)
	if w.j.everyUsage {
		b = w.usage(b)
	} else {
		b = append(b, "null"...)
	}
	return append(b, chunkEnd...)
}

// usage sums over the prompts.
func (w *sglangWriter) usage(b []byte) []byte {
	prompt, output, cached := 0, 0, 0
	for i := range w.choices {
		prompt += len(w.j.reqs[i].Tokens)
		output += max(w.choices[i].sent, len(w.choices[i].ids))
		cached += w.choices[i].state.Cached
	}
	b = appendInt(append(b, `{"prompt_tokens":`...), prompt)
	b = appendInt(append(b, `,"total_tokens":`...), prompt+output)
	b = appendInt(append(b, `,"completion_tokens":`...), output)
	b = append(b, `,"prompt_tokens_details":`...)
	if w.s.o.SGLang.CacheReport {
		b = append(appendInt(append(b, `{"cached_tokens":`...), cached), '}')
	} else {
		b = append(b, "null"...)
	}
	return append(b, `,"reasoning_tokens":0}`...)
}

// result is what /generate says of one prompt.
func (w *sglangWriter) result(b []byte, i int, finish string) []byte {
	c := &w.choices[i]
	b = append(tokens.AppendText(append(b, `{"text":"`...), c.ids...), `","output_ids":`...)
	b = append(appendIDs(b, c.ids), `,"meta_info":`...)
	b = w.meta(b, i, finish)
	if w.j.batch && w.j.stream {
		b = appendInt(append(b, `,"index":`...), i)
	}
	return append(b, '}')
}

func (w *sglangWriter) meta(b []byte, i int, finish string) []byte {
	c := &w.choices[i]
	b = appendQuoted(append(b, `{"id":`...), w.j.reqs[i].ID)
	b = append(b, `,"finish_reason":`...)
	switch finish {
	case "":
		b = append(b, "null"...)
	case engine.FinishLength:
		b = append(appendInt(append(b, `{"type":"length","length":`...), len(c.ids)), '}')
	default:
		b = append(appendQuoted(append(b, `{"type":`...), finish), `,"message":"Aborted","status_code":null,"err_type":null}`...)
	}
	b = appendInt(append(b, `,"prompt_tokens":`...), len(w.j.reqs[i].Tokens))
	b = append(b, `,"weight_version":"`+weightVersion+`"`...)
	b = w.logprobs(b, i)
	b = appendInt(append(b, `,"completion_tokens":`...), len(c.ids))
	b = appendInt(append(b, `,"cached_tokens":`...), c.state.Cached)
	if finish != "" {
		b = strconv.AppendFloat(append(b, `,"e2e_latency":`...), time.Since(w.j.started).Seconds(), 'f', 6, 64)
	}
	return append(b, '}')
}

// document appends the answer to a request that does not stream.
func (w *sglangWriter) document(b []byte) []byte {
	for i := range w.choices {
		if w.j.reqs[i].PrefillOnly {
			w.choices[i].ids = nil
		}
	}
	if w.j.flavour != native {
		return w.openAIDocument(b)
	}
	if !w.j.batch {
		return w.result(b, 0, w.choices[0].state.Finish)
	}
	b = append(b, '[')
	for i := range w.choices {
		if i > 0 {
			b = append(b, ',')
		}
		b = w.result(b, i, w.choices[i].state.Finish)
	}
	return append(b, ']')
}

func (w *sglangWriter) openAIDocument(b []byte) []byte {
	c := &w.choices[0]
	b = append(slices.Grow(b, len(w.head)+512+8*len(c.ids)), w.head...)
	if w.j.flavour == chat {
		b = tokens.AppendText(append(b, `"choices":[{"index":0,"message":{"role":"assistant","content":"`...), c.ids...)
		b = append(b, `","reasoning_content":null,"tool_calls":null},"logprobs":null,"finish_reason":`...)
	} else {
		b = tokens.AppendText(append(b, `"choices":[{"index":0,"text":"`...), c.ids...)
		b = append(b, `","logprobs":null,"finish_reason":`...)
	}
	b = append(w.openAIFinish(b, c.state.Finish), `,"usage":`...)
	return append(w.usage(b), `,"metadata":{"weight_version":"`+weightVersion+`"}}`...)
}
