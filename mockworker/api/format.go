package api

import (
	"slices"
	"strconv"
	"time"

	"fleetdrill/internal/tokens"
	"fleetdrill/mockworker/loop"
)

// writer formats the answer to one request. Field order and nulls are those of vLLM's own dumps.
type writer struct {
	s       *Server
	j       *job
	head    []byte // what every chunk begins with: `data: {"id":...,"model":"...",`
	choices []choice
	one     [1]choice // room for the usual number
	open    int       // choices that have not ended
}

// choice is one of the generations that a request asks for, as far as it is formatted.
type choice struct {
	index []byte // its number in JSON
	sent  int    // output tokens
	told  int    // characters of the text
	odds  odds   // behind the text so far, once begun
	begun bool
	ended bool
	state loop.State
	ids   []uint32 // all of them, when the answer is one document
}

const (
	completionObject      = "text_completion"
	chatObject            = "chat.completion"
	chatChunkObject       = "chat.completion.chunk"
	chunkStart            = "data: "
	chunkEnd              = "}\n\n"
	choicesStart          = `"choices":[{"index":`
	roleDelta             = `,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":`
	completionMessageTail = `,"service_tier":null,"system_fingerprint":null,"usage":`
)

func newWriter(s *Server, j *job) *writer {
	object := completionObject
	if j.flavour == chat {
		object = chatObject
		if j.stream {
			object = chatChunkObject
		}
	}
	w := &writer{s: s, j: j, open: len(j.reqs)}
	w.choices = w.one[:]
	if len(j.reqs) != 1 {
		w.choices = make([]choice, len(j.reqs))
	}
	for i := range w.choices {
		w.choices[i].index = indexText(i)
	}
	w.head = make([]byte, 0, len(chunkStart)+len(j.id)+len(object)+len(j.model)+64)
	if j.stream {
		w.head = append(w.head, chunkStart...)
	}
	w.head = appendQuoted(append(w.head, `{"id":`...), j.id)
	w.head = append(append(append(w.head, `,"object":"`...), object...), `","created":`...)
	w.head = strconv.AppendInt(w.head, time.Now().Unix(), 10)
	w.head = append(appendQuoted(append(w.head, `,"model":`...), j.model), ',')
	return w
}

var zeroIndex = []byte("0")

func indexText(i int) []byte {
	if i == 0 {
		return zeroIndex
	}
	return strconv.AppendInt(nil, int64(i), 10)
}

func (w *writer) ended(i int) bool { return w.choices[i].ended }
func (w *writer) allEnded() bool   { return w.open == 0 }
func (w *writer) request() string  { return w.j.id }

// chunks appends the tokens that came for a choice and, once all choices are done, how the stream ends.
func (w *writer) chunks(b []byte, i int, ids []uint32, state loop.State) []byte {
	c := &w.choices[i]
	c.state = state
	if state.Err != nil {
		c.ended = true
		w.open = 0 // nothing follows
		b = append(append(append(b, chunkStart...), engineError(state.Err).body()...), "\n\n"...)
		return append(b, doneChunk...)
	}
	for at, id := range ids {
		finish := ""
		if state.Done && at == len(ids)-1 {
			finish = state.Finish
		}
		b = w.chunk(b, c, i, finish, id)
	}
	if !state.Done {
		return b
	}
	if len(ids) == 0 { // aborted: the end comes without a token
		b = w.chunk(b, c, i, state.Finish)
	}
	c.ended = true
	if w.open--; w.open == 0 {
		b = w.end(b)
	}
	return b
}

// chunk appends one chunk with at most one token, before the first one the role of a chat.
func (w *writer) chunk(b []byte, c *choice, i int, finish string, id ...uint32) []byte {
	first := c.sent == 0
	if first && w.j.flavour == chat {
		b = append(append(append(append(b, w.head...), choicesStart...), c.index...), roleDelta...)
		b = w.chunkUsage(w.promptIDs(b, i), i)
	}
	c.sent += len(id)
	b = append(append(append(b, w.head...), choicesStart...), c.index...)
	if w.j.flavour == chat {
		b = w.chatChoice(b, i, finish, id)
	} else {
		b = w.completionChoice(b, i, first, finish, id)
	}
	return w.chunkUsage(b, i)
}

// end appends what follows the last token.
func (w *writer) end(b []byte) []byte {
	if w.j.usage {
		b = append(append(b, w.head...), `"choices":[],"usage":`...)
		b = append(w.usage(b, 0, len(w.choices)), chunkEnd...)
	}
	return append(b, doneChunk...)
}

func (w *writer) chatChoice(b []byte, i int, finish string, id []uint32) []byte {
	b = append(b, `,"delta":{"content":"`...)
	b = tokens.AppendText(b, id...) // output tokens are words: nothing to escape
	b = w.chatLogprobs(append(b, `"},"logprobs":`...), i, id)
	b = appendFinish(append(b, `,"finish_reason":`...), finish)
	if finish != "" {
		b = append(b, `,"stop_reason":null`...)
	}
	b = append(b, `,"token_ids":`...)
	return append(w.outputIDs(b, id), "}]"...)
}

func (w *writer) completionChoice(b []byte, i int, first bool, finish string, id []uint32) []byte {
	b = append(b, `,"text":"`...)
	if first && w.j.echo {
		b = w.echo(b, i)
	}
	said := id
	if w.j.promptOnly {
		said = nil
	}
	b = tokens.AppendText(b, said...)
	b = w.completionLogprobs(append(b, `","logprobs":`...), i, first && w.j.echo, said)
	b = append(appendFinish(append(b, `,"finish_reason":`...), finish), `,"stop_reason":null,"prompt_token_ids":`...)
	if first && w.j.echo {
		b = appendIDs(b, w.j.reqs[i].Tokens)
	} else if first {
		b = w.promptIDs(b, i)
	} else {
		b = append(b, "null"...)
	}
	b = append(b, `,"token_ids":`...)
	return append(w.outputIDs(b, id), "}]"...)
}

// echo appends the prompt of a choice inside a JSON string; who asks for token ids has it in those.
func (w *writer) echo(b []byte, i int) []byte {
	if w.j.returnIDs {
		return b
	}
	text := quote(tokens.Decode(w.j.reqs[i].Tokens))
	return append(b, text[1:len(text)-1]...)
}

func (w *writer) outputIDs(b []byte, ids []uint32) []byte {
	if !w.j.returnIDs {
		return append(b, "null"...)
	}
	return appendIDs(b, ids)
}

func (w *writer) promptIDs(b []byte, i int) []byte {
	if !w.j.returnIDs {
		return append(b, "null"...)
	}
	return appendIDs(b, w.j.reqs[i].Tokens)
}

// chunkUsage ends a chunk, with the usage of its choice so far if every chunk must tell it.
func (w *writer) chunkUsage(b []byte, i int) []byte {
	if w.j.everyUsage {
		b = w.usage(append(b, `,"usage":`...), i, i+1)
	}
	return append(b, chunkEnd...)
}

// usage appends what the choices from..to used; those of one prompt share its tokens.
func (w *writer) usage(b []byte, from, to int) []byte {
	var prompt, output, cached int64
	for i := from; i < to; i++ {
		if i == from || i%w.j.n == 0 {
			prompt += int64(len(w.j.reqs[i].Tokens))
			cached += int64(w.choices[i].state.Cached)
		}
		output += int64(w.choices[i].sent)
	}
	b = strconv.AppendInt(append(b, `{"prompt_tokens":`...), prompt, 10)
	b = strconv.AppendInt(append(b, `,"total_tokens":`...), prompt+output, 10)
	b = strconv.AppendInt(append(b, `,"completion_tokens":`...), output, 10)
	if w.s.o.PromptTokensDetails {
		b = strconv.AppendInt(append(b, `,"prompt_tokens_details":{"cached_tokens":`...), cached, 10)
		b = append(b, '}')
	}
	return append(b, '}')
}

// document appends the answer to a request that does not stream, out of the choices' ids and states.
func (w *writer) document(b []byte) []byte {
	size := len(w.head) + 512
	for i := range w.choices {
		w.choices[i].sent = len(w.choices[i].ids)
		size += 256 + 8*w.choices[i].sent
	}
	b = append(append(slices.Grow(b, size), w.head...), `"choices":[`...)
	for i := range w.choices {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, `{"index":`...), w.choices[i].index...)
		if w.j.flavour == chat {
			b = w.chatMessage(b, i, &w.choices[i])
		} else {
			b = w.completionText(b, i, &w.choices[i])
		}
	}
	b = append(append(b, ']'), completionMessageTail...)
	b = w.wholeUsage(b)
	if w.j.flavour == chat {
		b = w.promptLogprobs(append(b, `,"prompt_logprobs":`...), 0)
		b = w.promptIDs(append(b, `,"prompt_token_ids":`...), 0)
	}
	b = append(b, `,"kv_transfer_params":`...)
	if w.j.kvTransfer == nil {
		return append(b, "null}"...)
	}
	return append(append(b, w.j.kvTransfer...), '}')
}

func (w *writer) completionText(b []byte, i int, c *choice) []byte {
	b = append(b, `,"text":"`...)
	if w.j.echo {
		b = w.echo(b, i)
	}
	said := c.ids
	if w.j.promptOnly {
		said = nil
	}
	b = tokens.AppendText(b, said...)
	b = w.completionLogprobs(append(b, `","logprobs":`...), i, w.j.echo, said)
	b = appendFinish(append(b, `,"finish_reason":`...), c.state.Finish)
	b = append(b, `,"stop_reason":null,"token_ids":`...)
	b = w.outputIDs(b, c.ids)
	b = w.promptLogprobs(append(b, `,"prompt_logprobs":`...), i)
	return append(w.promptIDs(append(b, `,"prompt_token_ids":`...), i), '}')
}

func (w *writer) chatMessage(b []byte, i int, c *choice) []byte {
	b = tokens.AppendText(append(b, `,"message":{"role":"assistant","content":"`...), c.ids...)
	b = append(b, `","refusal":null,"annotations":null,"audio":null,"function_call":null,"tool_calls":[],"reasoning_content":null},"logprobs":`...)
	b = w.chatLogprobs(b, i, c.ids)
	b = append(appendFinish(append(b, `,"finish_reason":`...), c.state.Finish), `,"stop_reason":null,"token_ids":`...)
	return append(w.outputIDs(b, c.ids), '}')
}

// wholeUsage is usage as a whole document shows it: without details there is a null in their place.
func (w *writer) wholeUsage(b []byte) []byte {
	b = w.usage(b, 0, len(w.choices))
	if !w.s.o.PromptTokensDetails {
		b = append(b[:len(b)-1], `,"prompt_tokens_details":null}`...)
	}
	return b
}

func appendFinish(b []byte, finish string) []byte {
	if finish == "" {
		return append(b, "null"...)
	}
	return append(append(append(b, '"'), finish...), '"')
}

func appendIDs(b []byte, ids []uint32) []byte {
	b = append(b, '[')
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, uint64(id), 10)
	}
	return append(b, ']')
}
