package engine

import (
	"slices"

	"github.com/zeebo/xxh3"

	"fleetdrill/internal/tokens"
	"fleetdrill/mockworker/blockhash"
)

// request is one generation inside the engine.
type request struct {
	id        string
	maxTokens int
	// lora, salt and their namespace separate prefix caches.
	lora, salt string
	loraID     *int
	namespace  uint64
	ref        int
	// draw seeds the output tokens.
	draw uint64

	// tokens are prompt and output so far; only appended to, so events may alias them.
	tokens []uint32
	prompt int
	// hashes name the full runs of tokens that the layout hashes, which are blocks where all groups have one
	// block size; keys are their extra keys when there are any.
	hashes []blockhash.Digest
	keys   []ExtraKey

	// tables are the block tables, one a group, computed the tokens whose KV is in them.
	tables   []blockTable
	computed int

	priority int
	order    int64 // of arrival
	report   bool  // of the prefix found, too
	fresh    bool  // takes nothing from the cache

	readyAt  int64 // when the scheduler may first see it: its arrival and Timing.Overhead
	uncached int   // tokens not in the cache when it was queued
	started  bool
	finished bool // produced its last output in the present pass
	aborted  bool
	stats    RequestStats
}

// outputRoom is the room for output tokens reserved at once; longer outputs grow.
const outputRoom = 256

func newRequest(now int64, r Request, seed uint64) *request {
	q := &request{
		id: r.ID, maxTokens: r.MaxTokens, lora: r.LoRAName, salt: r.CacheSalt,
		namespace: tokens.Namespace("", r.LoRAName, r.CacheSalt),
		draw:      xxh3.HashStringSeed(r.ID, seed),
		prompt:    len(r.Tokens),
		ref:       r.Ref,
		hashes:    slices.Clone(r.Hashes),
		priority:  r.Priority,
		report:    r.ReportFull,
		fresh:     r.Reuse != nil && *r.Reuse == 0,
		stats:     RequestStats{Arrival: now, Prompt: len(r.Tokens)},
	}
	if r.LoRAName != "" {
		id := r.LoRAID // its own variable: with the address of a field all of r would be on the heap
		q.loraID = &id
	}
	for n := range q.hashes {
		q.extendKeys(n)
	}
	q.tokens = append(make([]uint32, 0, len(r.Tokens)+min(r.MaxTokens, outputRoom)), r.Tokens...)
	return q
}

func (q *request) output() int { return len(q.tokens) - q.prompt }

// nextToken draws the output token at the next position.
func (q *request) nextToken() uint32 { return OutputToken(q.draw, len(q.tokens)) }

// extendHashes hashes the runs of tokens that became full since the last call.
func (q *request) extendHashes(h *blockhash.Hasher, blockSize int) {
	for n := len(q.hashes); (n+1)*blockSize <= len(q.tokens); n++ {
		parent, extra := h.NoneHash(), blockhash.Extra{LoRAName: q.lora}
		if n > 0 {
			parent = q.hashes[n-1]
		} else {
			extra.CacheSalt = q.salt
		}
		q.hashes = append(q.hashes, h.Next(parent, q.tokens[n*blockSize:(n+1)*blockSize], extra))
		q.extendKeys(n)
	}
}

// extendKeys appends the extra key of block n as events show it; plain requests keep none.
func (q *request) extendKeys(n int) {
	if q.lora == "" && q.salt == "" {
		return
	}
	if n >= 2 { // all but the first block have the same
		q.keys = append(q.keys, q.keys[1])
		return
	}
	var key ExtraKey
	if q.lora != "" {
		key = append(key, ExtraItem{Text: q.lora})
	}
	if q.salt != "" && n == 0 {
		key = append(key, ExtraItem{Text: q.salt})
	}
	q.keys = append(q.keys, key)
}

// key is the extra key of block n, whatever its size: all but the first have the same.
func (q *request) key(n int) ExtraKey {
	if q.keys == nil {
		return nil
	}
	return q.keys[min(n, 1)]
}

// onDevice says that the request is running rather than waiting: one that waits has no blocks.
func (q *request) onDevice() bool { return len(q.tables[0].blocks) > 0 }

// finish closes the request's record.
func (q *request) finish(outcome string) *RequestStats {
	q.stats.Output, q.stats.Outcome = q.output(), outcome
	stats := q.stats
	return &stats
}
