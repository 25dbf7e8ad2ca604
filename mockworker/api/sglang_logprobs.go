package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"fleetdrill/internal/badjson"
	"fleetdrill/internal/tokens"
)

// sglangWants are the keys of /generate that ask for log probabilities, each for all prompts or for each of a list.
type sglangWants struct {
	ReturnLogprob   perPrompt[bool] `json:"return_logprob"`
	LogprobStartLen perPrompt[*int] `json:"logprob_start_len"`
	TopLogprobsNum  perPrompt[int]  `json:"top_logprobs_num"`
	TokenIDsLogprob idsPerPrompt    `json:"token_ids_logprob"`
	ReturnText      bool            `json:"return_text_in_logprobs"`
}

// perPrompt is one value for all prompts, or a list with one for each.
type perPrompt[T any] struct {
	all  T
	each []T // nil unless it was a list
}

// UnmarshalJSON reads a value or a list of them.
func (p *perPrompt[T]) UnmarshalJSON(b []byte) error {
	*p = perPrompt[T]{}
	if b[0] == '[' {
		return json.Unmarshal(b, &p.each)
	}
	return json.Unmarshal(b, &p.all)
}

func (p *perPrompt[T]) of(i int) T {
	if p.each != nil {
		return p.each[i]
	}
	return p.all
}

// idsPerPrompt are token ids for all prompts, or a list with those of each.
type idsPerPrompt struct{ perPrompt[[]uint32] }

// UnmarshalJSON reads a list of ids or a list of such lists.
func (p *idsPerPrompt) UnmarshalJSON(b []byte) error {
	*p = idsPerPrompt{}
	if inner := bytes.TrimLeft(bytes.TrimPrefix(b, []byte{'['}), " \t\r\n"); b[0] == '[' && len(inner) > 0 && inner[0] == '[' {
		return json.Unmarshal(b, &p.each)
	}
	if err := json.Unmarshal(b, &p.all); err != nil {
		return fmt.Errorf("token_ids_logprob must be a list of token ids, or a list of such lists: %w", badjson.Error(err))
	}
	return nil
}

// sglangLogprobs are what one prompt asks for; nil is nothing.
type sglangLogprobs struct {
	start int // the first token of the prompt that is told; its length is none
	top   int
	ids   []uint32 // asked about at each place; nil is not asked
	text  bool
}

// mostSGLangTop bounds top_logprobs_num, which SGLang does not.
const mostSGLangTop = 1000

// lists says that every list has one entry for each of n prompts.
func (w *sglangWants) lists(batch bool, n int) *apiError {
	for _, list := range []struct {
		name   string
		length int
	}{
		{"return_logprob", listed(w.ReturnLogprob.each)}, {"logprob_start_len", listed(w.LogprobStartLen.each)},
		{"top_logprobs_num", listed(w.TopLogprobsNum.each)}, {"token_ids_logprob", listed(w.TokenIDsLogprob.each)},
	} {
		if list.length >= 0 && (!batch || list.length != n) {
			return badRequest(list.name, "%s is a list of %d, must be one value, or a list of one for each prompt of a list", list.name, list.length)
		}
	}
	return nil
}

// listed is the length of a list, -1 of none.
func listed[T any](each []T) int {
	if each == nil {
		return -1
	}
	return len(each)
}

// of is what prompt i, of n tokens, asks for.
func (w *sglangWants) of(i, n int) (*sglangLogprobs, *apiError) {
	if !w.ReturnLogprob.of(i) {
		return nil, nil
	}
	l := &sglangLogprobs{start: n, top: w.TopLogprobsNum.of(i), text: w.ReturnText}
	if given := w.LogprobStartLen.of(i); given != nil && *given != -1 {
		l.start = *given
	}
	if ids := w.TokenIDsLogprob.of(i); len(ids) > 0 {
		l.ids = ids
	}
	switch {
	case l.start < 0:
		return nil, badRequest("logprob_start_len", "logprob_start_len is %d, must be -1 or more", l.start)
	case l.start > n:
		return nil, badRequest("logprob_start_len", "logprob_start_len (%d) is higher than the number of input tokens (%d). Please use a smaller logprob_start_len.", l.start, n)
	case l.top > mostSGLangTop:
		return nil, badRequest("top_logprobs_num", "top_logprobs_num is %d, this engine tells at most %d", l.top, mostSGLangTop)
	}
	for _, id := range l.ids {
		if id >= tokens.Vocab {
			return nil, badRequest("token_ids_logprob", "token id %d is out of vocabulary, which has %d", id, tokens.Vocab)
		}
	}
	return l, nil
}

// sglangColumns are the lists of a prompt or an output so far, each without its brackets.
type sglangColumns struct{ own, top, ids []byte }

// entry appends a figure, its token and, if wanted, the token's text.
func (l *sglangLogprobs) entry(b []byte, value []byte, id uint32) []byte {
	b = append(append(append(b, '['), value...), ',')
	b = append(strconv.AppendUint(b, uint64(id), 10), ',')
	if l.text {
		return append(appendQuoted(b, tokenText(id)), ']')
	}
	return append(b, "null]"...)
}

// at appends the entry of a rank.
func (l *sglangLogprobs) at(b []byte, p *place, rank int, id uint32) []byte {
	var room [32]byte
	return l.entry(b, appendLogprob(room[:0], p.logprob(rank)), id)
}

// unknown adds the token that a list of a prompt begins with, of which nothing is told.
func (c *sglangColumns) unknown(l *sglangLogprobs, id uint32) {
	c.own = l.entry(comma(c.own), []byte("null"), id)
	c.top, c.ids = append(comma(c.top), "null"...), append(comma(c.ids), "null"...)
}

// token adds a place: its token, the likeliest ones and those asked about.
func (c *sglangColumns) token(l *sglangLogprobs, p *place) {
	c.own = l.at(comma(c.own), p, p.rank, p.token)
	c.top = append(comma(c.top), '[')
	for r := 1; r <= l.top; r++ {
		if r > 1 {
			c.top = append(c.top, ',')
		}
		c.top = l.at(c.top, p, r, p.at(r))
	}
	c.top = append(c.top, ']')
	c.ids = append(comma(c.ids), '[')
	for i, id := range l.ids {
		if i > 0 {
			c.ids = append(c.ids, ',')
		}
		c.ids = l.at(c.ids, p, p.rankOf(id), id)
	}
	c.ids = append(c.ids, ']')
}

// strideBack undoes stride: their product is 1 modulo the number of words.
const strideBack = 31_717

// rankOf is the rank of a token, the inverse of at. Bytes, which are no words, come behind all words; so does the
// word in whose place a byte stands.
func (p *place) rankOf(id uint32) int {
	if id == p.token {
		return p.rank
	}
	if id < tokens.FirstWord {
		return words + 2 + int(id)
	}
	from := (uint64(id-tokens.FirstWord) + words - uint64(p.base)) % words
	rank := int(from * strideBack % words)
	switch rank {
	case 0:
		rank = words
	case p.rank:
		rank = words + 1
	}
	return rank
}

// sglangTold is what of a choice's log probabilities is made.
type sglangTold struct {
	input, output sglangColumns
	odds          odds
	begun         bool
	tokens        int // of the output
}

// logprobs appends those of choice i to its meta_info. A stream tells all of them again in every chunk.
func (w *sglangWriter) logprobs(b []byte, i int) []byte {
	l := w.j.logprobs[i]
	if l == nil {
		return b
	}
	t := &w.told[i]
	if !t.begun {
		t.begin(l, w.s.o.Seed, w.j.reqs[i].Tokens)
	}
	for ; t.tokens < len(w.choices[i].ids); t.tokens++ {
		p := t.odds.next(w.choices[i].ids[t.tokens])
		t.output.token(l, &p)
	}
	b = append(append(b, `,"input_token_logprobs":[`...), t.input.own...)
	b = append(append(b, `],"output_token_logprobs":[`...), t.output.own...)
	if l.top > 0 {
		b = append(append(b, `],"input_top_logprobs":[`...), t.input.top...)
		b = append(append(b, `],"output_top_logprobs":[`...), t.output.top...)
	}
	if l.ids != nil {
		b = append(append(b, `],"input_token_ids_logprobs":[`...), t.input.ids...)
		b = append(append(b, `],"output_token_ids_logprobs":[`...), t.output.ids...)
	}
	return append(b, ']')
}

// begin makes the lists of the prompt.
func (t *sglangTold) begin(l *sglangLogprobs, seed uint64, prompt []uint32) {
	t.begun, t.odds = true, startOdds(seed)
	t.odds.skip(prompt[:l.start])
	for at, id := range prompt[l.start:] {
		p := t.odds.next(id)
		if at == 0 {
			t.input.unknown(l, id)
			continue
		}
		t.input.token(l, &p)
	}
}
