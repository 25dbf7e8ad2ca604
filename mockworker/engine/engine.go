package engine

import (
	"fmt"

	"fleetdrill/mockworker/blockhash"
)

// Engine is one rank's scheduler and block pool. It is not safe for concurrent use.
type Engine struct {
	cfg Config
	layout
	watermark int // blocks
	maxChunk  int // tokens that one request computes in a step, at most

	pool    *pool
	host    *hostTier  // nil without one
	running []*request // in order of admission
	waiting waitQueue
	byID    map[string]*request
	arrived int64
	next    int // place in running that is being scheduled

	waitingUncached int64
	usedTokens      int64 // sum of computed over running
	genRate         average
	hitRate         average
	before          []Sum // as the last step found them
	steps           int64
	pace            Pace
	counters        Counters
	aborting        []*request // in order of Abort

	// What one step works with, kept to be filled again.
	batch   []scheduled
	outputs []Output
	events  []Event
	// handedOut says that events went out with the last step and may be overwritten. A clear that found
	// no step to travel with stays.
	handedOut bool
	prefix    prefix
	removed   []blockhash.Digest
	nilKeys   []ExtraKey // the extra keys of any plain run of blocks: all nil, never written
}

// scheduled is one request's share of a step.
type scheduled struct {
	q *request
	n int // tokens to compute
}

// New makes an idle engine with an empty cache. It fails on a configuration out of range.
func New(c Config) (*Engine, error) {
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("engine of rank %d: %w", c.Rank, err)
	}
	l := newLayout(c)
	e := &Engine{
		cfg: c, layout: l, pool: newPool(c.NumBlocks, len(l.groups)), host: newHostTier(c), byID: make(map[string]*request),
		watermark: int(c.Watermark * float64(c.NumBlocks)), maxChunk: c.MaxNumBatchedTokens,
		genRate: average{weight: genRateWeight}, hitRate: average{weight: hitRateWeight}, pace: Pace{Jitter: c.Timing.Jitter},
	}
	if most := c.LongPrefillTokenThreshold; most > 0 {
		e.maxChunk = min(e.maxChunk, most)
	}
	e.prefix.blocks = make([][]int32, len(e.groups))
	e.before = e.appendSums(nil)
	return e, nil
}

// Add queues a request at now. It fails with ErrBadRequest, ErrTooLong or ErrNeverFits, and then nothing
// has changed.
func (e *Engine) Add(now int64, r Request) error {
	if err := e.check(r); err != nil {
		return err
	}
	if e.hashSize != e.cfg.BlockSize {
		r.Hashes = nil // they are of other runs of tokens
	}
	q := newRequest(now, r, e.cfg.Seed)
	q.readyAt = now + e.cfg.Timing.Overhead
	q.tables = make([]blockTable, len(e.groups))
	q.order = e.arrived
	e.arrived++
	if e.cfg.EnablePrefixCaching {
		q.extendHashes(e.cfg.Hasher, e.hashSize)
	}
	e.byID[q.id] = q
	e.enqueue(q)
	e.waiting.push(q, e.cfg.SchedulingPolicy)
	return nil
}

func (e *Engine) check(r Request) error {
	if len(r.Tokens) == 0 || r.MaxTokens < 1 {
		return fmt.Errorf("%w: %d prompt tokens, %d output tokens asked for", ErrBadRequest, len(r.Tokens), r.MaxTokens)
	}
	if _, ok := e.byID[r.ID]; ok {
		return fmt.Errorf("%w: id %q is in use", ErrBadRequest, r.ID)
	}
	total := len(r.Tokens) + r.MaxTokens
	if total > e.cfg.MaxModelLen {
		return fmt.Errorf("%w: %d prompt tokens + %d output tokens > %d", ErrTooLong, len(r.Tokens), r.MaxTokens, e.cfg.MaxModelLen)
	}
	// The last output token is never computed, so it needs no slot.
	if need := e.layout.most(total-1, e.maxChunk); need > e.cfg.NumBlocks-1 {
		return fmt.Errorf("%w: needs %d blocks of %d", ErrNeverFits, need, e.cfg.NumBlocks-1)
	}
	return nil
}

// enqueue books what a request that starts to wait will have to compute, as the cache is now.
func (e *Engine) enqueue(q *request) {
	q.uncached = len(q.tokens) - e.found(e.lookup(q))
	e.waitingUncached += int64(q.uncached)
}

// Abort makes a request leave at the next step, wherever it is; its last Output has Finish "abort". It
// returns false when there is no such request or it already produced its last output.
func (e *Engine) Abort(_ int64, id string) bool {
	q := e.byID[id]
	if q == nil || q.aborted {
		return false
	}
	q.aborted = true
	e.aborting = append(e.aborting, q)
	return true
}

// ResetPrefixCache empties the prefix cache when no block is in use, and queues Cleared for the next step
// that runs a model pass. With any block in use it changes nothing and returns false, unless preempt takes
// every running request out first.
func (e *Engine) ResetPrefixCache(preempt bool) bool {
	if preempt {
		e.emptyAll()
	}
	if !e.pool.idle() {
		return false
	}
	e.clearCaches()
	e.beginEvents()
	e.events = append(e.events, Event{Kind: Cleared})
	return true
}

// DropCache empties the prefix cache between two steps and tells nobody, as when the process behind it was
// a new one. What runs is preempted, so that no block with content is left: it computes and announces
// everything anew.
func (e *Engine) DropCache() {
	e.emptyAll()
	// A clear that still waited for its step has nothing left to say.
	e.dropEvents()
}

// emptyAll leaves no block with content and no request running.
func (e *Engine) emptyAll() {
	e.clearCaches() // before the preemptions, which book what each will find in the cache
	for len(e.running) > 0 {
		e.preemptOne()
	}
}

// clearCaches empties both tiers: nothing tells a subscriber which one was cleared.
func (e *Engine) clearCaches() {
	e.pool.clear()
	if e.host != nil {
		e.host.clear()
	}
}

// SetPace makes the model passes that begin from now on slower or uneven, never evener than the engine's
// timing has them.
func (e *Engine) SetPace(p Pace) {
	p.Jitter = max(p.Jitter, e.cfg.Timing.Jitter)
	e.pace = p
}

// Load is a snapshot.
func (e *Engine) Load() Load {
	l := Load{
		Running: len(e.running), Waiting: e.waiting.len(), MaxRunning: e.cfg.MaxNumSeqs,
		WaitingUncachedTokens: e.waitingUncached,
		KVUsage:               e.pool.usage(), Steps: e.steps,
		UsedTokens: e.usedTokens, MaxTokens: int64(e.cfg.NumBlocks-1) / int64(len(e.groups)) * int64(e.cfg.BlockSize),
		GenRate: e.genRate.value, HitRate: e.hitRate.value,
	}
	l.TokenUsage = min(float64(l.UsedTokens)/float64(l.MaxTokens), 1)
	return l
}

// Counters is a snapshot of the counters.
func (e *Engine) Counters() Counters { return e.counters }

// Match is the number of leading blocks of a prompt that are cached now, whole blocks only and without the
// rule that the last token is always computed. Of several groups it asks the first that holds everything.
// Empty strings are no adapter and no salt.
func (e *Engine) Match(ids []uint32, lora, salt string) int {
	if !e.cfg.EnablePrefixCaching {
		return 0
	}
	g, parent := &e.groups[e.main], e.cfg.Hasher.NoneHash()
	extra := blockhash.Extra{LoRAName: lora, CacheSalt: salt}
	for n := 1; n*e.hashSize <= len(ids); n++ {
		hash := e.cfg.Hasher.Next(parent, ids[(n-1)*e.hashSize:n*e.hashSize], extra)
		if n%g.scale == 0 && e.pool.first(&hash, g.index) == nullBlock {
			return n/g.scale - 1
		}
		parent, extra.CacheSalt = hash, ""
	}
	return len(ids) / g.BlockSize
}

// MatchHashes is Match for a prompt whose blocks are hashed already.
func (e *Engine) MatchHashes(hashes []blockhash.Digest) int {
	if !e.cfg.EnablePrefixCaching {
		return 0
	}
	for n := range hashes {
		if e.pool.first(&hashes[n], int32(e.main)) == nullBlock {
			return n
		}
	}
	return len(hashes)
}

// Blocks yields every distinct hash of each group and of the host tier, in no particular order that
// callers may rely on, until yield returns false.
func (e *Engine) Blocks(yield func(Block) bool) {
	more := true
	e.pool.each(func(id int32) bool {
		b := &e.pool.blocks[id]
		copies, inUse := e.pool.table.copies(id)
		g := &e.groups[b.state.group()]
		more = yield(Block{
			Hash: e.pool.hashOf(id), Parent: b.parent, Position: int(b.pos), Content: b.content, Copies: copies,
			InUse: inUse, Medium: MediumGPU, Group: int(g.index), SpecKind: g.Kind,
		})
		return more
	})
	if more && e.host != nil {
		e.host.each(yield)
	}
}
