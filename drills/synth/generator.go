package synth

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"

	"fleetdrill/internal/rng"
	"fleetdrill/internal/tokens"
	"fleetdrill/replayer/load"
)

// Generator makes the requests of a spec one by one. It is a load.Source and not safe for concurrent use.
type Generator struct {
	s       Spec
	model   string // as JSON
	n       int
	clockNs float64 // the last instant of a Poisson load

	instants, inputs, outputs, heads, fresh *rand.Rand

	// headText is each head's tokens as JSON, fixed each prompt of a hits-only load: they are what most
	// of the bytes sent repeat.
	headText [][]byte
	fixed    []prompt
}

var _ load.Source = (*Generator)(nil)

// prompt is a token-id prompt: its ids as they stand in JSON, without the brackets, and their number.
type prompt struct {
	text   []byte
	tokens int
}

// New checks the spec and prepares its heads.
func New(s Spec) (*Generator, error) {
	if err := s.Validate(); err != nil {
		return nil, fmt.Errorf("load %q: %w", s.Name, err)
	}
	s = s.expanded()
	model, err := json.Marshal(s.Model)
	if err != nil {
		return nil, fmt.Errorf("load %q: model %q: %w", s.Name, s.Model, err)
	}
	g := &Generator{s: s, model: string(model)}
	stream := func(name string) *rand.Rand { return rng.Stream(s.Seed, s.Name+"/"+name) }
	g.instants, g.inputs, g.outputs = stream("instants"), stream("inputs"), stream("outputs")
	g.heads, g.fresh = stream("heads"), stream("fresh")
	for i := range s.Heads {
		// A head's name holds no load's, so loads of one seed and head length share their heads. Heads of
		// another length share nothing with them: an engine that holds the longer one without having
		// announced it (its publisher restarted) would not announce the shorter one either, and all that
		// is stored behind it would hang in the air.
		name := fmt.Sprintf("head/%d/%d", s.HeadTokens, i)
		g.headText = append(g.headText, appendTokens(nil, rng.Stream(s.Seed, name), s.HeadTokens))
	}
	if s.HitsOnly {
		g.fix()
	}
	return g, nil
}

// fix draws the prompts of a hits-only load.
func (g *Generator) fix() {
	for i := range max(1, g.s.Heads) {
		r := rng.Stream(g.s.Seed, "hit/"+strconv.Itoa(i))
		p := prompt{tokens: within(r, g.s.Input)}
		if i < len(g.headText) {
			p.text = append(p.text, g.headText[i]...)
		} else {
			p.text = appendTokens(nil, r, g.s.HeadTokens)
		}
		p.text = appendTokens(p.text, r, p.tokens)
		p.tokens += g.s.HeadTokens
		g.fixed = append(g.fixed, p)
	}
}

// Next makes the next request; false after Spec.Count of them.
func (g *Generator) Next() (load.Request, bool) {
	if g.s.Count > 0 && g.n >= g.s.Count {
		return load.Request{}, false
	}
	r := load.Request{
		OffsetNs:  g.offset(),
		ID:        fmt.Sprintf("%s-%016x-%06d", g.s.Name, g.s.Seed, g.n),
		Path:      "/v1/completions",
		MaxTokens: within(g.outputs, g.s.Output),
	}
	p := g.prompt(&r)
	r.PromptTokens = p.tokens
	r.Body = g.body(p, r.MaxTokens)
	g.n++
	return r, true
}

// offset is the instant of request n in nanoseconds after the start.
func (g *Generator) offset() int64 {
	if g.s.Rate == 0 {
		return 0
	}
	slot := 1e9 / g.s.Rate
	if g.s.Poisson {
		g.clockNs += float64(g.instants.ExpFloat64() * slot)
		return int64(g.clockNs)
	}
	// Each product is cut to whole nanoseconds by itself: a fused multiply and add would round otherwise
	// on some architectures.
	return int64(float64(g.n)*slot) + int64(g.instants.Float64()*(slot/2))
}

// prompt draws the prompt of request n and notes in r how it begins. Every stream is drawn from in every
// request, used or not, so that one property of a load does not shift another.
func (g *Generator) prompt(r *load.Request) prompt {
	input, fresh := within(g.inputs, g.s.Input), g.fresh.Float64() < g.s.freshShare()
	r.Head = -1
	if n := max(g.s.Heads, len(g.fixed)); n > 0 {
		r.Head = g.heads.IntN(n)
	}
	if g.s.HitsOnly {
		return g.fixed[r.Head]
	}
	own := rng.Stream(rng.RunSeed(g.s.Seed, g.n), g.s.Name+"/tokens")
	p := prompt{tokens: g.s.HeadTokens + input}
	p.text = make([]byte, 0, p.tokens*maxTokenText)
	if fresh {
		r.NewPrefix, r.Head = true, -1
		p.text = appendTokens(p.text, own, g.s.HeadTokens)
	} else {
		p.text = append(p.text, g.headText[r.Head]...)
	}
	p.text = appendTokens(p.text, own, input)
	return p
}

// body is an OpenAI completions request. The engine must not stop early, or the load would depend on
// what the tokens happen to say; usage comes with the last chunk.
func (g *Generator) body(p prompt, maxTokens int) []byte {
	b := make([]byte, 0, len(p.text)+len(g.model)+160)
	b = append(b, '{')
	if g.s.Model != "" {
		b = append(append(append(b, `"model":`...), g.model...), ',')
	}
	b = append(b, `"prompt":[`...)
	// Every token is written with a comma after it; the last comma goes.
	b = append(b, p.text[:len(p.text)-1]...)
	b = append(b, `],"max_tokens":`...)
	b = strconv.AppendInt(b, int64(maxTokens), 10)
	return append(b, `,"ignore_eos":true,"temperature":0,"stream":true,"stream_options":{"include_usage":true}}`...)
}

// maxTokenText is the longest text of a token id with its comma, in bytes.
const maxTokenText = 7

// appendTokens appends n drawn token ids, each with a comma behind it. They are words: ids below
// FirstWord are bytes, which text round trips may merge.
func appendTokens(dst []byte, r *rand.Rand, n int) []byte {
	for range n {
		dst = strconv.AppendUint(dst, uint64(tokens.FirstWord+r.Uint32N(tokens.Vocab-tokens.FirstWord)), 10)
		dst = append(dst, ',')
	}
	return dst
}

// within draws uniformly from an inclusive range.
func within(r *rand.Rand, in Range) int { return in.Min + r.IntN(in.Max-in.Min+1) }
