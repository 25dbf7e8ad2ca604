package radix

import (
	"errors"
	"fmt"
	"slices"

	"fleetdrill/mockworker/blockhash"
	"fleetdrill/mockworker/engine"
)

// Config is what an engine is made of: that of vLLM's engine, read as SGLang's. BlockSize is the page size,
// MaxNumBatchedTokens the chunked prefill size, MaxNumSeqs the most running requests; one of NumBlocks is
// put aside, as in the other engine, so that both hold the same.
type Config struct {
	engine.Config
	// Eviction is LRU if empty.
	Eviction Policy
	// Bigram makes pages of pairs of neighbouring tokens, as SGLang does for speculative decoding with EAGLE:
	// so a page is full one token later.
	Bigram bool
	// WritePolicy is when pages are copied to the host tier, whose size is HostBlocks.
	WritePolicy WritePolicy
}

// Engine is one rank's scheduler and cache. It is not safe for concurrent use.
type Engine struct {
	cfg  Config
	tree *tree
	log  *journal
	// free counts the pages that nobody has: the pool less those of the tree and the requests' own.
	free int

	now     int64 // the latest that it was told
	waiting []*request
	running []*request // decoding, in the order in which their prompts were done
	// chunked is the one request that is in the middle of its prompt.
	chunked *request
	// full says that nobody can be admitted until a running request leaves.
	full     bool
	byID     map[string]*request
	aborting []*request // in order of Abort
	ratio    float64    // share of the output still to come for which room is kept

	waitingUncached int64
	steps           int64
	pace            engine.Pace
	averages        engine.Averages
	counters        engine.Counters

	// What one step works with, kept to be filled again.
	batch   []scheduled
	outputs []engine.Output
}

// scheduled is one request's share of a step.
type scheduled struct {
	q      *request
	n      int // tokens to compute
	pages  int // to take for them
	decode bool
}

var _ engine.Core = (*Engine)(nil)

// New makes an idle engine with an empty cache, which the first step says: a radix tree announces that it is
// empty when it is made. It fails on a configuration out of range.
func New(c Config) (*Engine, error) {
	err := c.Validate()
	if err == nil {
		err = errors.Join(c.Eviction.Validate(), c.WritePolicy.Validate())
	}
	if err != nil {
		return nil, fmt.Errorf("SGLang engine of rank %d: %w", c.Rank, err)
	}
	log := &journal{pageSize: c.BlockSize}
	e := &Engine{
		cfg: c, log: log, tree: newTree(c.BlockSize, c.Eviction, log), free: c.NumBlocks - 1,
		byID: map[string]*request{}, ratio: initialRatio,
		pace: engine.Pace{Jitter: c.Timing.Jitter}, averages: engine.NewAverages(),
	}
	if c.HostBlocks > 0 {
		e.tree.host = newHostTier(c.HostBlocks, c.Eviction, c.WritePolicy)
	}
	if c.EnablePrefixCaching {
		log.cleared()
	}
	return e, nil
}

// Add implements engine.Core.
func (e *Engine) Add(now int64, r engine.Request) error {
	if err := e.check(r); err != nil {
		return err
	}
	e.now = now
	q := newRequest(now, r, e.cfg.Draw(r.ID))
	if q.bigram = e.cfg.Bigram; q.bigram {
		q.hashes = nil // those of the request are of plain pages
	}
	q.readyAt = now + e.cfg.Timing.Overhead
	if e.cfg.EnablePrefixCaching {
		q.hash(e.cfg.Hasher, e.cfg.BlockSize, e.fullPages(q.prompt))
	}
	e.byID[q.id] = q
	e.enqueue(q)
	return nil
}

func (e *Engine) check(r engine.Request) error {
	if len(r.Tokens) == 0 || r.MaxTokens < 1 {
		return fmt.Errorf("%w: %d prompt tokens, %d output tokens asked for", engine.ErrBadRequest, len(r.Tokens), r.MaxTokens)
	}
	if _, ok := e.byID[r.ID]; ok {
		return fmt.Errorf("%w: id %q is in use", engine.ErrBadRequest, r.ID)
	}
	total := len(r.Tokens) + r.MaxTokens
	if total > e.cfg.MaxModelLen {
		return fmt.Errorf("%w: %d prompt tokens + %d output tokens > %d", engine.ErrTooLong, len(r.Tokens), r.MaxTokens, e.cfg.MaxModelLen)
	}
	// The last output token is never computed, so it needs no slot.
	if need := e.pagesFor(total - 1); need > e.cfg.NumBlocks-1 {
		return fmt.Errorf("%w: needs %d pages of %d", engine.ErrNeverFits, need, e.cfg.NumBlocks-1)
	}
	return nil
}

// enqueue puts a request at the end of the queue and books what it will have to compute, as the cache is
// now. SGLang sends retracted requests to the end, too, which is before those that are still on their way.
func (e *Engine) enqueue(q *request) {
	q.uncached = len(q.tokens) - e.tree.peek(q.lora, e.reusable(q))*e.cfg.BlockSize
	e.waitingUncached += int64(q.uncached)
	at := len(e.waiting)
	for at > 0 && q.readyAt <= e.now && e.waiting[at-1].readyAt > e.now {
		at--
	}
	e.waiting = slices.Insert(e.waiting, at, q)
}

// reusable are the hashes of the pages that may be taken from the cache: at least the last token is left to
// compute, because a pass over nothing yields no next token.
func (e *Engine) reusable(q *request) []blockhash.Digest {
	most := len(q.tokens) - 1
	if q.reuse != nil {
		most = min(most, *q.reuse)
	}
	return q.hashes[:min(len(q.hashes), e.fullPages(most))]
}

// Abort implements engine.Core.
func (e *Engine) Abort(_ int64, id string) bool {
	q := e.byID[id]
	if q == nil || q.aborted {
		return false
	}
	q.aborted = true
	e.aborting = append(e.aborting, q)
	return true
}

// ResetPrefixCache implements engine.Core. It is SGLang's flush, which happens only when nothing runs or
// waits; with preempt the running requests go back to the queue first, and whoever waits may.
func (e *Engine) ResetPrefixCache(preempt bool) bool {
	if preempt {
		e.emptyAll()
	}
	if !preempt && len(e.byID) > 0 {
		return false
	}
	e.clear()
	if e.cfg.EnablePrefixCaching {
		e.log.cleared()
	}
	return true
}

// DropCache implements engine.Core.
func (e *Engine) DropCache() {
	e.emptyAll()
	e.clear()
	e.log.drop() // a clear that still waited for its step has nothing left to say
}

// emptyAll sends whoever runs back to the queue, in the order of its arrival there.
func (e *Engine) emptyAll() {
	for _, q := range e.onDevice() {
		e.retract(q)
	}
	e.running, e.chunked = e.running[:0], nil
}

// onDevice are the running requests, the one in the middle of its prompt last.
func (e *Engine) onDevice() []*request {
	if e.chunked == nil {
		return e.running
	}
	return append(slices.Clip(e.running), e.chunked)
}

// clear empties the tree; nobody runs.
func (e *Engine) clear() {
	e.tree.clear()
	e.free, e.full = e.cfg.NumBlocks-1, false
	e.waitingUncached = 0
	for _, q := range e.waiting {
		q.uncached = len(q.tokens)
		e.waitingUncached += int64(q.uncached)
	}
}

// SetPace implements engine.Core. No pace is evener than the engine's timing.
func (e *Engine) SetPace(p engine.Pace) {
	p.Jitter = max(p.Jitter, e.cfg.Timing.Jitter)
	e.pace = p
}

// Load implements engine.Core. Cached pages that nobody uses count as free.
func (e *Engine) Load() engine.Load {
	l := engine.Load{
		Waiting: len(e.waiting), MaxRunning: e.cfg.MaxNumSeqs, WaitingUncachedTokens: e.waitingUncached, Steps: e.steps,
		KVUsage:   1 - float64(e.available())/float64(e.cfg.NumBlocks-1),
		MaxTokens: int64(e.cfg.NumBlocks-1) * int64(e.cfg.BlockSize),
	}
	for _, q := range e.onDevice() {
		l.Running++
		l.UsedTokens += int64(q.computed)
	}
	l.TokenUsage = min(float64(l.UsedTokens)/float64(l.MaxTokens), 1)
	e.averages.Fill(&l)
	return l
}

// Counters implements engine.Core.
func (e *Engine) Counters() engine.Counters { return e.counters }

// Match implements engine.Core.
func (e *Engine) Match(ids []uint32, lora, salt string) int {
	if !e.cfg.EnablePrefixCaching {
		return 0
	}
	q := request{tokens: ids, salt: salt, bigram: e.cfg.Bigram}
	q.hash(e.cfg.Hasher, e.cfg.BlockSize, e.fullPages(len(ids)))
	return e.tree.peek(lora, q.hashes)
}

// Blocks implements engine.Core. A page that several adapters' trees have is one block with that many
// copies: their hashes are the same.
func (e *Engine) Blocks(yield func(engine.Block) bool) {
	if len(e.tree.branches) == 1 {
		e.tree.each(yield)
		return
	}
	type place struct {
		hash   blockhash.Digest
		medium string
	}
	merged := make(map[place]engine.Block, e.tree.pages)
	e.tree.each(func(b engine.Block) bool {
		at := place{b.Hash, b.Medium}
		if other, ok := merged[at]; ok {
			b.Copies += other.Copies
			b.InUse = b.InUse || other.InUse
		}
		merged[at] = b
		return true
	})
	for _, b := range merged {
		if !yield(b) {
			return
		}
	}
}

// fullPages is how many pages of the tree n tokens fill.
func (e *Engine) fullPages(n int) int {
	if e.cfg.Bigram {
		n-- // positions are pairs
	}
	return max(n, 0) / e.cfg.BlockSize
}

// pagesFor is how many pages n tokens take.
func (e *Engine) pagesFor(n int) int { return (n + e.cfg.BlockSize - 1) / e.cfg.BlockSize }

// available is how many pages can be had: the free ones and those that may be evicted.
func (e *Engine) available() int { return e.free + e.tree.evictable }
