package api

import (
	"strconv"
	"time"

	"fleetdrill/internal/tokens"
	"fleetdrill/mockworker/loop"
)

// writer formats the answer to one request. Field order and nulls are those of vLLM's own dumps.
type writer struct {
	s    *Server
	j    *job
	head []byte // what every chunk begins with: `data: {"id":...,"model":"...",`
	buf  []byte // the chunks of one write
	sent int    // output tokens formatted so far
}

const (
	completionObject      = "text_completion"
	chatObject            = "chat.completion"
	chatChunkObject       = "chat.completion.chunk"
	chunkStart            = "data: "
	chunkEnd              = "}\n\n"
	roleDelta             = `"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":`
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
	w := &writer{s: s, j: j}
	if j.stream {
		w.head = append(w.head, chunkStart...)
	}
	w.head = append(append(w.head, `{"id":`...), quote(j.req.ID)...)
	w.head = append(append(append(w.head, `,"object":"`...), object...), `","created":`...)
	w.head = strconv.AppendInt(w.head, time.Now().Unix(), 10)
	w.head = append(append(append(w.head, `,"model":`...), quote(s.o.Model)...), ',')
	return w
}

// chunks formats the tokens that came and, once done, how the stream ends. The result is valid until the
// next call.
func (w *writer) chunks(ids []uint32, state loop.State) []byte {
	w.buf = w.buf[:0]
	if state.Err != nil {
		w.buf = append(append(append(w.buf, chunkStart...), engineError(state.Err).body()...), "\n\n"...)
		return append(w.buf, doneChunk...)
	}
	for i, id := range ids {
		finish := ""
		if state.Done && i == len(ids)-1 {
			finish = state.Finish
		}
		if w.sent == 0 && w.j.flavour == chat {
			w.buf = append(append(w.buf, w.head...), roleDelta...)
			w.buf = w.promptIDs(w.buf)
			w.buf = w.chunkUsage(w.buf, state)
		}
		w.sent++
		w.buf = append(w.buf, w.head...)
		if w.j.flavour == chat {
			w.buf = w.chatChoice(w.buf, id, finish)
		} else {
			w.buf = w.completionChoice(w.buf, id, finish)
		}
		w.buf = w.chunkUsage(w.buf, state)
	}
	if state.Done {
		w.end(state)
	}
	return w.buf
}

// end formats what follows the last token.
func (w *writer) end(state loop.State) {
	if w.j.usage {
		w.buf = append(append(w.buf, w.head...), `"choices":[],"usage":`...)
		w.buf = append(w.usage(w.buf, state), chunkEnd...)
	}
	w.buf = append(w.buf, doneChunk...)
}

func (w *writer) chatChoice(b []byte, id uint32, finish string) []byte {
	b = append(b, `"choices":[{"index":0,"delta":{"content":"`...)
	b = tokens.AppendText(b, id) // output tokens are words: nothing to escape
	b = append(b, `"},"logprobs":null,"finish_reason":`...)
	b = appendFinish(b, finish)
	if finish != "" {
		b = append(b, `,"stop_reason":null`...)
	}
	b = append(b, `,"token_ids":`...)
	return append(w.tokenID(b, id), "}]"...)
}

func (w *writer) completionChoice(b []byte, id uint32, finish string) []byte {
	b = append(b, `"choices":[{"index":0,"text":"`...)
	b = tokens.AppendText(b, id)
	b = append(b, `","logprobs":null,"finish_reason":`...)
	b = append(appendFinish(b, finish), `,"stop_reason":null,"prompt_token_ids":`...)
	if w.sent == 1 {
		b = w.promptIDs(b)
	} else {
		b = append(b, "null"...)
	}
	b = append(b, `,"token_ids":`...)
	return append(w.tokenID(b, id), "}]"...)
}

func (w *writer) tokenID(b []byte, id uint32) []byte {
	if !w.j.returnIDs {
		return append(b, "null"...)
	}
	return append(strconv.AppendUint(append(b, '['), uint64(id), 10), ']')
}

func (w *writer) promptIDs(b []byte) []byte {
	if !w.j.returnIDs {
		return append(b, "null"...)
	}
	return appendIDs(b, w.j.req.Tokens)
}

// chunkUsage ends a chunk, with the usage so far if every chunk must tell it.
func (w *writer) chunkUsage(b []byte, state loop.State) []byte {
	if w.j.everyUsage {
		b = w.usage(append(b, `,"usage":`...), state)
	}
	return append(b, chunkEnd...)
}

func (w *writer) usage(b []byte, state loop.State) []byte {
	prompt := int64(len(w.j.req.Tokens))
	b = strconv.AppendInt(append(b, `{"prompt_tokens":`...), prompt, 10)
	b = strconv.AppendInt(append(b, `,"total_tokens":`...), prompt+int64(w.sent), 10)
	b = strconv.AppendInt(append(b, `,"completion_tokens":`...), int64(w.sent), 10)
	if w.s.o.PromptTokensDetails {
		b = strconv.AppendInt(append(b, `,"prompt_tokens_details":{"cached_tokens":`...), int64(state.Cached), 10)
		b = append(b, '}')
	}
	return append(b, '}')
}

// document is the answer to a request that does not stream.
func (w *writer) document(ids []uint32, state loop.State) []byte {
	w.sent = len(ids)
	b := append(make([]byte, 0, len(w.head)+512+8*len(ids)), w.head...)
	if w.j.flavour == chat {
		return w.chatDocument(b, ids, state)
	}
	b = tokens.AppendText(append(b, `"choices":[{"index":0,"text":"`...), ids...)
	b = appendFinish(append(b, `","logprobs":null,"finish_reason":`...), state.Finish)
	b = append(b, `,"stop_reason":null,"token_ids":`...)
	b = w.allIDs(b, ids)
	b = append(b, `,"prompt_logprobs":null,"prompt_token_ids":`...)
	b = append(append(w.promptIDs(b), "}]"...), completionMessageTail...)
	b = w.wholeUsage(b, state)
	return append(b, `,"kv_transfer_params":null}`...)
}

func (w *writer) chatDocument(b []byte, ids []uint32, state loop.State) []byte {
	b = tokens.AppendText(append(b, `"choices":[{"index":0,"message":{"role":"assistant","content":"`...), ids...)
	b = append(b, `","refusal":null,"annotations":null,"audio":null,"function_call":null,"tool_calls":[],"reasoning_content":null},"logprobs":null,"finish_reason":`...)
	b = append(appendFinish(b, state.Finish), `,"stop_reason":null,"token_ids":`...)
	b = append(append(w.allIDs(b, ids), "}]"...), completionMessageTail...)
	b = append(w.wholeUsage(b, state), `,"prompt_logprobs":null,"prompt_token_ids":`...)
	return append(w.promptIDs(b), `,"kv_transfer_params":null}`...)
}

// wholeUsage is usage as a whole document shows it: without details there is a null in their place.
func (w *writer) wholeUsage(b []byte, state loop.State) []byte {
	b = w.usage(b, state)
	if !w.s.o.PromptTokensDetails {
		b = append(b[:len(b)-1], `,"prompt_tokens_details":null}`...)
	}
	return b
}

func (w *writer) allIDs(b []byte, ids []uint32) []byte {
	if !w.j.returnIDs {
		return append(b, "null"...)
	}
	return appendIDs(b, ids)
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
