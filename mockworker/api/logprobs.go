package api

import (
	"encoding/json"
	"math"
	"strconv"
	"unicode/utf8"

	"fleetdrill/internal/badjson"
	"fleetdrill/internal/tokens"
)

// Log probabilities of tokens that were drawn without a distribution. One is made up around each token, out of
// the seed and the tokens in front of it, so that the same text always has the same figures: a geometric one,
// whose probabilities add up to 1, in which the token stands at a rank drawn from it. The alternatives are other
// words of the vocabulary, each once.

// odds are where in a text the next distribution is made up.
type odds uint64

// place is the distribution of one place of a text.
type place struct {
	token uint32
	rank  int     // of the token, from 1
	first float64 // probability of rank 1
	base  uint32  // word at rank 0
}

const (
	words = tokens.Vocab - tokens.FirstWord
	// stride leads from the word at a rank to the next one's; it has no divisor in common with the number of
	// words, so that none comes twice.
	stride = 60_013
	// lastRank bounds how unlikely a drawn token is.
	lastRank = 1_000
)

// startOdds begins a text.
func startOdds(seed uint64) odds { return odds(tokens.DigestTerm(seed + 1)) }

// next is the distribution around the next token of the text.
func (o *odds) next(token uint32) place {
	draw := tokens.DigestTerm(uint64(*o) + uint64(token) + 1)
	*o = odds(draw)
	p := place{token: token, first: 0.3 + 0.65*unit(draw)}
	at := tokens.DigestTerm(draw)
	p.rank = min(1+int(math.Log1p(-unit(at))/math.Log1p(-p.first)), lastRank)
	p.base = uint32(tokens.DigestTerm(at) % words)
	if token >= tokens.FirstWord { // the row of words leads through it
		p.base = uint32((uint64(token-tokens.FirstWord) + words*uint64(stride) - uint64(p.rank)*stride) % words)
	}
	return p
}

// skip passes over tokens that nobody asks about.
func (o *odds) skip(ids []uint32) {
	for _, id := range ids {
		*o = odds(tokens.DigestTerm(uint64(*o) + uint64(id) + 1))
	}
}

// unit is a number from 0 to below 1.
func unit(bits uint64) float64 { return float64(bits>>11) / (1 << 53) }

// at is the token at a rank.
func (p *place) at(rank int) uint32 {
	if rank == p.rank {
		return p.token
	}
	return tokens.FirstWord + uint32((uint64(p.base)+uint64(rank)*stride)%words)
}

// logprob is that of a rank, in the precision that engines compute.
func (p *place) logprob(rank int) float64 {
	return float64(float32(math.Log(p.first) + float64(rank-1)*math.Log1p(-p.first)))
}

// ranks are the places that vLLM tells of most asked for: the token itself, then the likeliest without it.
func (p *place) ranks(most int) func(func(int) bool) {
	return func(yield func(int) bool) {
		if !yield(p.rank) {
			return
		}
		for r := 1; r <= most; r++ {
			if r != p.rank && !yield(r) {
				return
			}
		}
	}
}

// wants are the keys of a vLLM request that ask for log probabilities.
type wants struct {
	Logprobs         json.RawMessage `json:"logprobs"`
	TopLogprobs      *int            `json:"top_logprobs"`
	PromptLogprobs   *int            `json:"prompt_logprobs"`
	TokensAsTokenIDs bool            `json:"return_tokens_as_token_ids"`
}

// none says that no log probabilities are asked for, which 0 is not: it asks for the token's own.
const none = -1

// logprobs are what is asked for: so many alternatives of each token of the output and of the prompt.
type logprobs struct {
	output, prompt int
	asIDs          bool // tokens are called token_id:7
}

// maxLogprobs is vLLM's --max-logprobs by default.
const maxLogprobs = 20

// read checks what a completion, which gives a number, or a chat, which gives a flag and a number, asks for.
func (w *wants) read(f flavour, stream, echo bool) (logprobs, *apiError) {
	l := logprobs{none, none, w.TokensAsTokenIDs}
	output, prompt := none, none
	if n := w.PromptLogprobs; n != nil {
		if stream && *n != 0 && *n >= none {
			return l, invalid("prompt_logprobs", "`prompt_logprobs` are not available when `stream=True`.")
		}
		if *n < -1 {
			return l, invalid("prompt_logprobs", "`prompt_logprobs` must be a positive value or -1.")
		}
		if prompt = *n; prompt == -1 {
			prompt = tokens.Vocab
		}
	}
	var err *apiError
	if f == chat {
		output, err = w.readChat()
	} else {
		output, err = w.readNumber()
	}
	if err != nil {
		return l, err
	}
	if echo && prompt == none {
		prompt = output
	}
	switch {
	case output > maxLogprobs:
		return l, badRequest("logprobs", "Requested sample logprobs of %d, which is greater than max allowed: %d", output, maxLogprobs)
	case prompt > maxLogprobs:
		return l, badRequest("prompt_logprobs", "Requested prompt logprobs of %d, which is greater than max allowed: %d", prompt, maxLogprobs)
	}
	l.output, l.prompt = output, prompt
	return l, nil
}

func (w *wants) readNumber() (int, *apiError) {
	var n *int
	if err := unmarshalGiven(w.Logprobs, &n); err != nil {
		return none, invalid("logprobs", "`logprobs` must be an integer.")
	}
	switch {
	case n == nil:
		return none, nil
	case *n < -1:
		return none, invalid("logprobs", "`logprobs` must be a positive value or -1.")
	case *n == -1:
		return tokens.Vocab, nil
	}
	return *n, nil
}

func (w *wants) readChat() (int, *apiError) {
	var on *bool
	if err := unmarshalGiven(w.Logprobs, &on); err != nil {
		return none, invalid("logprobs", "logprobs is not valid: %v", badjson.Error(err))
	}
	n := 0
	if w.TopLogprobs != nil {
		n = *w.TopLogprobs
	}
	switch wanted := on != nil && *on; {
	case n < -1:
		return none, invalid("top_logprobs", "`top_logprobs` must be a positive value or -1.")
	case n != 0 && !wanted:
		return none, invalid("top_logprobs", "when using `top_logprobs`, `logprobs` must be set to true.")
	case !wanted:
		return none, nil
	case n == -1:
		return tokens.Vocab, nil
	}
	return n, nil
}

// appendLogprob appends a figure as JSON has it.
func appendLogprob(b []byte, v float64) []byte { return strconv.AppendFloat(b, v, 'g', -1, 64) }

// tokenText is the text of one token, as a tokenizer gives it back: bytes that are no text by themselves are
// U+FFFD.
func tokenText(id uint32) string {
	if id < tokens.FirstWord && id >= utf8.RuneSelf {
		return "\ufffd"
	}
	return tokens.Decode([]uint32{id})
}

// name is what a token is called.
func (l *logprobs) name(id uint32) string {
	if l.asIDs {
		return "token_id:" + strconv.Itoa(int(id))
	}
	return tokenText(id)
}

// columns are the four lists of a completion's log probabilities.
type columns struct {
	offsets, logprobs, names, tops []byte
	end                            int // of the text so far, in characters
}

func comma(b []byte) []byte {
	if len(b) > 0 {
		b = append(b, ',')
	}
	return b
}

// begin adds the name of a token.
func (c *columns) begin(name string) {
	c.offsets = strconv.AppendInt(comma(c.offsets), int64(c.end), 10)
	c.names = appendQuoted(comma(c.names), name)
	c.end += utf8.RuneCountInString(name)
}

// unknown adds a token of which nothing is known: the first of a prompt.
func (c *columns) unknown(name string) {
	c.begin(name)
	c.logprobs, c.tops = append(comma(c.logprobs), "null"...), append(comma(c.tops), "null"...)
}

// token adds a token and its likeliest alternatives.
func (c *columns) token(l *logprobs, p *place) {
	c.begin(l.name(p.token))
	c.logprobs = appendLogprob(comma(c.logprobs), p.logprob(p.rank))
	c.tops = append(comma(c.tops), '{')
	first := true
	for r := range p.ranks(l.output) {
		if !first {
			c.tops = append(c.tops, ',')
		}
		first = false
		c.tops = append(appendQuoted(c.tops, l.name(p.at(r))), ':')
		c.tops = appendLogprob(c.tops, p.logprob(r))
	}
	c.tops = append(c.tops, '}')
}

func (c *columns) append(b []byte) []byte {
	b = append(append(b, `{"text_offset":[`...), c.offsets...)
	b = append(append(b, `],"token_logprobs":[`...), c.logprobs...)
	b = append(append(b, `],"tokens":[`...), c.names...)
	return append(append(append(b, `],"top_logprobs":[`...), c.tops...), "]}"...)
}

// oddsOf is where choice i is in its text; its prompt is passed over at first.
func (w *writer) oddsOf(i int) *odds {
	c := &w.choices[i]
	if !c.begun {
		c.begun, c.odds = true, startOdds(w.s.o.Seed)
		c.odds.skip(w.j.reqs[i].Tokens)
	}
	return &c.odds
}

// completionLogprobs appends those of the tokens that a chunk or a whole answer tells, behind the prompt if that
// is told with it; text is how many characters of it came before.
func (w *writer) completionLogprobs(b []byte, i int, prompt bool, ids []uint32) []byte {
	l := &w.j.logprobs
	if l.output == none {
		return append(b, "null"...)
	}
	c := columns{end: w.choices[i].told}
	if prompt {
		o := startOdds(w.s.o.Seed)
		for at, id := range w.j.reqs[i].Tokens {
			p := o.next(id)
			if at == 0 {
				c.unknown(l.name(id))
			} else {
				c.token(l, &p)
			}
		}
	}
	for _, id := range ids {
		p := w.oddsOf(i).next(id)
		c.token(l, &p)
	}
	if prompt && !w.j.returnIDs {
		w.choices[i].told += utf8.RuneCountInString(tokens.Decode(w.j.reqs[i].Tokens))
	}
	w.choices[i].told += utf8.RuneCountInString(tokens.Decode(ids))
	return c.append(b)
}

// chatLogprobs appends those of a chat's tokens.
func (w *writer) chatLogprobs(b []byte, i int, ids []uint32) []byte {
	l := &w.j.logprobs
	if l.output == none {
		return append(b, "null"...)
	}
	b = append(b, `{"content":[`...)
	for at, id := range ids {
		p := w.oddsOf(i).next(id)
		if at > 0 {
			b = append(b, ',')
		}
		b = appendQuoted(append(b, `{"token":`...), l.name(id))
		b = appendLogprob(append(b, `,"logprob":`...), p.logprob(p.rank))
		b = appendBytes(append(b, `,"bytes":`...), tokenText(id))
		b = append(b, `,"top_logprobs":[`...)
		told := 0
		for r := range p.ranks(l.output) {
			if told == l.output {
				break
			}
			if told++; told > 1 {
				b = append(b, ',')
			}
			name := l.name(p.at(r))
			b = appendQuoted(append(b, `{"token":`...), name)
			b = appendLogprob(append(b, `,"logprob":`...), p.logprob(r))
			b = append(appendBytes(append(b, `,"bytes":`...), name), '}')
		}
		b = append(b, "]}"...)
	}
	return append(b, "]}"...)
}

// appendBytes appends the bytes of a text as a list of numbers.
func appendBytes(b []byte, text string) []byte {
	b = append(b, '[')
	for i := range len(text) {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, uint64(text[i]), 10)
	}
	return append(b, ']')
}

// promptLogprobs appends those of a prompt: null for its first token, then for each an object by token id.
func (w *writer) promptLogprobs(b []byte, i int) []byte {
	l := &w.j.logprobs
	if l.prompt == none {
		return append(b, "null"...)
	}
	o := startOdds(w.s.o.Seed)
	b = append(b, '[')
	for at, id := range w.j.reqs[i].Tokens {
		p := o.next(id)
		if at == 0 {
			b = append(b, "null"...)
			continue
		}
		b = append(b, ",{"...)
		first := true
		for r := range p.ranks(l.prompt) {
			if !first {
				b = append(b, ',')
			}
			first = false
			b = strconv.AppendUint(append(b, '"'), uint64(p.at(r)), 10)
			b = appendLogprob(append(b, `":{"logprob":`...), p.logprob(r))
			b = strconv.AppendInt(append(b, `,"rank":`...), int64(r), 10)
			b = append(appendQuoted(append(b, `,"decoded_token":`...), tokenText(p.at(r))), '}')
		}
		b = append(b, '}')
	}
	return append(b, ']')
}
