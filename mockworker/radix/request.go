package radix

import (
	"slices"

	"fleetdrill/internal/tokens"
	"fleetdrill/mockworker/blockhash"
	"fleetdrill/mockworker/engine"
)

// request is one generation inside the engine.
type request struct {
	id         string
	maxTokens  int
	lora, salt string
	ref        int
	readyAt    int64  // when it reaches the scheduler
	draw       uint64 // seeds the output tokens

	// tokens are prompt and output so far; only appended to, so events may alias them.
	tokens []uint32
	prompt int
	// hashes name the leading pages of tokens: the prompt's, and the output's once it goes into the tree.
	hashes []blockhash.Digest

	// bigram pages are made of pairs of neighbouring tokens.
	bigram bool
	// reuse bounds the tokens that may be taken from the tree, if it is not nil; prefillOnly says that no token
	// is wanted.
	reuse       *int
	prefillOnly bool

	// node ends the part of the tree that the request uses, nil while it waits: its protected leading pages.
	// own counts the pages behind those, which only it has.
	node      *node
	protected int
	own       int
	computed  int // tokens whose KV exists

	uncached int // tokens not in the cache when it was queued
	started  bool
	aborted  bool
	stats    engine.RequestStats
}

// outputRoom is the room for output tokens reserved at once; longer outputs grow.
const outputRoom = 256

func newRequest(now int64, r engine.Request, draw uint64) *request {
	q := &request{
		id: r.ID, maxTokens: r.MaxTokens, lora: r.LoRAName, salt: r.CacheSalt, ref: r.Ref, draw: draw,
		prompt: len(r.Tokens), hashes: slices.Clone(r.Hashes), reuse: r.Reuse, prefillOnly: r.PrefillOnly,
		stats: engine.RequestStats{Arrival: now, Prompt: len(r.Tokens)},
	}
	q.tokens = append(make([]uint32, 0, len(r.Tokens)+min(r.MaxTokens, outputRoom)), r.Tokens...)
	return q
}

func (q *request) output() int    { return len(q.tokens) - q.prompt }
func (q *request) onDevice() bool { return q.node != nil }

// left is the number of output tokens still to come.
func (q *request) left() int { return q.maxTokens - q.output() }

// hash names the first full pages.
func (q *request) hash(h *blockhash.Hasher, pageSize, full int) {
	for n := len(q.hashes); n < full; n++ {
		parent, extra := h.NoneHash(), blockhash.Extra{}
		if n > 0 {
			parent = q.hashes[n-1]
		} else {
			extra.CacheSalt = q.salt
		}
		q.hashes = append(q.hashes, h.Next(parent, q.hashed(n*pageSize, (n+1)*pageSize), extra))
	}
}

// hashed is what of positions from..to enters a hash: the tokens, or of each pair both.
func (q *request) hashed(from, to int) []uint32 {
	if !q.bigram {
		return q.tokens[from:to]
	}
	pairs := make([]uint32, 0, 2*(to-from))
	for i := from; i < to; i++ {
		pairs = append(pairs, q.tokens[i], q.tokens[i+1])
	}
	return pairs
}

// text is the tokens of pages from..to, with the other half of the last pair of bigram pages.
func (q *request) text(from, to, pageSize int) []uint32 {
	end := to * pageSize
	if q.bigram {
		end++
	}
	return q.tokens[from*pageSize : end : end]
}

// pages are the pages from..to. Their content hashes are those that the events lead to: with the salt in the
// first one, and without the adapter, which SGLang's events do not name.
func (q *request) pages(from, to, pageSize int) []page {
	out := make([]page, 0, to-from)
	for i := from; i < to; i++ {
		content := tokens.ContentHash(q.tokens[i*pageSize : (i+1)*pageSize])
		if i == 0 {
			content = tokens.Root(tokens.Namespace("", "", q.salt), content)
		}
		out = append(out, page{q.hashes[i], content})
	}
	return out
}

// finish closes the request's record.
func (q *request) finish(outcome string) *engine.RequestStats {
	q.stats.Output, q.stats.Outcome = q.output(), outcome
	if q.prefillOnly {
		q.stats.Output = 0
	}
	stats := q.stats
	return &stats
}
