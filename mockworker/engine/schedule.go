package engine

// schedule fills the batch: one token budget, running requests first in order of admission, then waiting
// ones first come, first served.
func (e *Engine) schedule(now int64) Pass {
	var w Pass
	e.beginEvents()
	budget := e.cfg.MaxNumBatchedTokens
	budget, preempted := e.scheduleRunning(budget, &w)
	if !preempted { // a step that threw one out has no room for others
		e.admit(now, budget, &w)
	}
	return w
}

// scheduleRunning gives every running request its tokens while the budget lasts. One that finds no block
// throws out the last admitted, in the end itself.
func (e *Engine) scheduleRunning(budget int, w *Pass) (left int, preempted bool) {
	for i := 0; i < len(e.running) && budget > 0; i++ {
		q := e.running[i]
		n := min(len(q.tokens)-q.computed, budget)
		for !e.allocate(q, nil, n) {
			preempted = true
			if e.preemptLast() == q {
				return budget, preempted
			}
		}
		budget -= n
		e.put(q, n, w)
	}
	return budget, preempted
}

// preemptLast sends the last admitted request back to the front of the queue. Its blocks stay cached, so
// it may find them again; everything else is computed anew, its output so far as part of the prompt.
func (e *Engine) preemptLast() *request {
	last := len(e.running) - 1
	q := e.running[last]
	e.running[last] = nil
	e.running = e.running[:last]
	e.pool.release(q.blocks)
	e.usedTokens -= int64(q.computed)
	q.blocks, q.computed, q.cached = q.blocks[:0], 0, 0
	q.stats.Preemptions++
	e.counters.Preemptions++
	e.enqueue(q)
	e.waiting.pushFront(q)
	return q
}

// admit takes waiting requests in while there are budget, places and blocks. The first that does not fit
// keeps the others waiting.
func (e *Engine) admit(now int64, budget int, w *Pass) {
	for budget > 0 && e.waiting.len() > 0 && len(e.running) < e.cfg.MaxNumSeqs {
		q := e.waiting.front()
		if q.readyAt > now {
			return
		}
		e.hits = e.lookup(e.hits[:0], q)
		hit := len(e.hits) * e.cfg.BlockSize
		n := min(len(q.tokens)-hit, budget)
		if !e.allocate(q, e.hits, n) {
			return
		}
		e.waiting.pop()
		e.waitingUncached -= int64(q.uncached)
		e.running = append(e.running, q)
		e.start(q, now, hit)
		budget -= n
		e.put(q, n, w)
	}
}

// start notes a request's first admission; a preempted one that comes back is not counted again.
func (e *Engine) start(q *request, now int64, hit int) {
	if q.started {
		return
	}
	q.started = true
	q.stats.Scheduled, q.stats.CachedTokens = now, hit
	if e.cfg.EnablePrefixCaching {
		e.counters.PrefixQueries += int64(len(q.tokens))
		e.counters.PrefixHits += int64(hit)
		e.hitRate.add(float64(hit) / float64(len(q.tokens)))
	}
}

// put adds a request's n tokens to the batch. A single token behind a computed prompt is decoding,
// anything else a prefill chunk.
func (e *Engine) put(q *request, n int, w *Pass) {
	e.batch = append(e.batch, scheduled{q, n})
	if n == 1 && q.output() > 0 && q.computed+1 == len(q.tokens) {
		w.Decode(len(q.tokens))
		return
	}
	w.Prefill(n, q.computed)
}

// lookup appends the cached leading blocks of a request to dst. At least the last token is left to
// compute, because a pass over nothing yields no next token: an aligned prompt that is wholly cached
// computes its last block again.
func (e *Engine) lookup(dst []int32, q *request) []int32 {
	most := (len(q.tokens) - 1) / e.cfg.BlockSize
	for i := range q.hashes[:min(most, len(q.hashes))] {
		id := e.pool.table.first(&q.hashes[i])
		if id == nullBlock {
			break
		}
		dst = append(dst, id)
	}
	return dst
}

// allocate makes room for n more tokens behind the computed ones and the hit blocks, and caches every
// block that these tokens fill. Without room it changes nothing and returns false.
func (e *Engine) allocate(q *request, hits []int32, n int) bool {
	computed := q.computed + len(hits)*e.cfg.BlockSize
	need := e.blocksFor(computed+n) - len(q.blocks) - len(hits)
	if need > e.pool.free.size-e.unheld(hits) {
		return false
	}
	// Hits first: taking new blocks must not evict what was just found.
	for _, id := range hits {
		e.pool.touch(id)
	}
	q.blocks = append(q.blocks, hits...)
	e.usedTokens += int64(computed - q.computed)
	q.computed, q.cached = computed, q.cached+len(hits)
	for range need {
		q.blocks = append(q.blocks, e.takeBlock())
	}
	if e.cfg.EnablePrefixCaching {
		e.cacheFull(q, min(computed+n, len(q.tokens))/e.cfg.BlockSize)
	}
	return true
}

// unheld counts the blocks that sit in the free queue and would leave it when touched.
func (e *Engine) unheld(ids []int32) int {
	n := 0
	for _, id := range ids {
		if e.pool.blocks[id].refs == 0 {
			n++
		}
	}
	return n
}

// takeBlock takes the next block to reuse and announces the copy it evicts.
func (e *Engine) takeBlock() int32 {
	id, evicted, wasCached := e.pool.take()
	if wasCached {
		at := len(e.removed)
		e.removed = append(e.removed, evicted)
		e.events = append(e.events, Event{
			Kind: Removed, Hashes: e.removed[at : at+1 : at+1], Medium: MediumGPU,
		})
	}
	return id
}

// cacheFull puts blocks cached..full of a request into the cache, announced by one event.
func (e *Engine) cacheFull(q *request, full int) {
	from := q.cached
	if from >= full {
		return
	}
	for i := from; i < full; i++ {
		var parent uint64
		if i > 0 {
			parent = q.hashes[i-1].EventInt()
		}
		e.pool.store(q.blocks[i], q.hashes[i], parent, e.contentOf(q, i), i)
	}
	q.cached = full
	bs := e.cfg.BlockSize
	ev := Event{
		Kind: Stored, Hashes: q.hashes[from:full:full], Tokens: q.tokens[from*bs : full*bs : full*bs],
		BlockSize: bs, LoRAID: q.loraID, LoRAName: q.lora, ExtraKeys: e.keysOf(q, from, full),
		SpecKind: KindFullAttention, Medium: MediumGPU, CacheSalt: q.salt,
	}
	if from > 0 {
		ev.Parent = &q.hashes[from-1]
	}
	e.events = append(e.events, ev)
}

// keysOf is the extra keys of blocks from..to of a request.
func (e *Engine) keysOf(q *request, from, to int) []ExtraKey {
	if q.keys != nil {
		return q.keys[from:to:to]
	}
	n := to - from
	for len(e.nilKeys) < n {
		e.nilKeys = append(e.nilKeys, nil)
	}
	return e.nilKeys[:n:n]
}
