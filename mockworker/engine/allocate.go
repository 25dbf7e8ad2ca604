package engine

import (
	"fleetdrill/internal/tokens"
	"fleetdrill/mockworker/blockhash"
)

// blockTable is one group's share of a request: its blocks in order, null for those that fell out of a window.
type blockTable struct {
	blocks []int32
	cached int // leading blocks that were cached or passed over
	nulls  int // leading nulls
}

// allocate makes room for n more tokens behind the computed ones and what hit found for a request to be
// admitted, nil for one that runs, and caches every block that these tokens fill. Without room it gives out
// nothing and returns false.
func (e *Engine) allocate(q *request, hit *prefix, n int) bool {
	computed := q.computed
	if hit != nil {
		computed = e.found(hit)
	} else {
		e.dropOutside(q)
	}
	if e.needed(q, hit, computed+n)+e.keptBack(q, hit, computed+n) > e.pool.free.size-e.unheld(hit) {
		return false
	}
	if hit != nil {
		e.take(q, hit)
	}
	for i := range e.groups {
		for t := &q.tables[i]; len(t.blocks) < ceil(computed+n, e.groups[i].BlockSize); {
			t.blocks = append(t.blocks, e.takeBlock())
		}
	}
	e.usedTokens += int64(computed - q.computed)
	q.computed = computed
	if e.cfg.EnablePrefixCaching {
		e.cacheFull(q, min(computed+n, len(q.tokens)))
	}
	return true
}

// dropOutside gives back the blocks that no token to come can see, tail first, so that null takes their
// places. Their hashes stay cached until somebody else needs the blocks.
func (e *Engine) dropOutside(q *request) {
	for i := range e.groups {
		t, skip := &q.tables[i], e.groups[i].skipped(q.computed)
		if skip <= t.nulls {
			continue
		}
		e.pool.release(t.blocks[t.nulls:skip])
		clear(t.blocks[t.nulls:skip])
		t.nulls = skip
	}
}

// needed is how many blocks a request must get to have n tokens.
func (e *Engine) needed(q *request, hit *prefix, n int) (blocks int) {
	for i := range e.groups {
		blocks += ceil(n, e.groups[i].BlockSize) - len(q.tables[i].blocks)
		if hit != nil {
			blocks -= len(hit.blocks[i])
		}
	}
	return blocks
}

// keptBack is how many further blocks must be free to admit a request that gets room for n tokens: those of
// the rest of its sequence, where all of it must fit, and while others run the watermark.
func (e *Engine) keptBack(q *request, hit *prefix, n int) (blocks int) {
	if hit == nil {
		return 0
	}
	if e.cfg.ReserveFullISL {
		blocks = max(0, e.layout.most(len(q.tokens), e.maxChunk)-e.layout.most(n, e.maxChunk))
	}
	if len(e.running) > 0 {
		blocks += e.watermark
	}
	return blocks
}

// unheld counts the blocks that sit in the free queue and would leave it when touched.
func (e *Engine) unheld(hit *prefix) (n int) {
	if hit == nil {
		return 0
	}
	for _, ids := range hit.blocks {
		for _, id := range ids {
			if id != nullBlock && e.pool.blocks[id].state.refs() == 0 {
				n++
			}
		}
	}
	return n
}

// take gives a request what was found, before any new block: taking those must not evict these.
func (e *Engine) take(q *request, hit *prefix) {
	for i, ids := range hit.blocks {
		t := &q.tables[i]
		for _, id := range ids {
			if id != nullBlock {
				e.pool.touch(id)
			}
		}
		t.blocks = append(t.blocks, ids...)
		t.cached = len(ids)
		if g := &e.groups[i]; g.windowed() {
			t.nulls = max(0, len(ids)-g.tail)
		}
		if q.report && !q.started && len(ids) > 0 {
			e.announce(q, &e.groups[i], 0, len(ids), func(at int) bool { return ids[at] != nullBlock })
			e.events[len(e.events)-1].Reused = true
		}
	}
	if hit.host > 0 {
		from := hit.tokens / e.cfg.BlockSize
		e.host.use(q.hashes[from : from+hit.host])
	}
}

// takeBlock takes the next block to reuse and announces the copy it evicts.
func (e *Engine) takeBlock() int32 {
	id, was, wasCached := e.pool.take()
	if !wasCached {
		return id
	}
	at := len(e.removed)
	e.removed = append(e.removed, was.hash)
	e.events = append(e.events, Event{
		Kind: Removed, Hashes: e.removed[at : at+1 : at+1], Medium: MediumGPU, Group: int(was.group),
	})
	if e.host != nil && e.pool.first(&was.hash, was.group) == nullBlock {
		e.host.demote(id, &was)
	}
	return id
}

// cacheFull puts the blocks that n tokens of a request fill into the cache, announced by one event a group.
func (e *Engine) cacheFull(q *request, n int) {
	for i := range e.groups {
		g, t := &e.groups[i], &q.tables[i]
		from, full := t.cached, n/g.BlockSize
		if from >= full {
			continue
		}
		for at := from; at < full; at++ {
			if g.caches(at) {
				e.store(q, g, t.blocks[at], at)
			}
		}
		t.cached = full
		if g.segment == 0 {
			e.announce(q, g, from, full, nil)
		} else {
			e.announce(q, g, from, full, g.caches)
		}
	}
}

// store puts block at of a request into the cache.
func (e *Engine) store(q *request, g *group, id int32, at int) {
	var parent uint64
	if at > 0 {
		parent = q.hashes[at*g.scale-1].EventInt()
	}
	content := tokens.ContentHash(q.tokens[at*g.BlockSize : (at+1)*g.BlockSize])
	if at == 0 {
		content = tokens.Root(q.namespace, content)
	}
	e.pool.store(id, q.hashes[(at+1)*g.scale-1], g.index, parent, content, at)
	if e.host != nil {
		e.host.remember(id, q, at, q.key(at))
	}
}

// announce queues the store of blocks from..to of a request. A sparse one tells all tokens of the range and
// only the hashes that has says are there, as vLLM does; there may be none. nil has everything.
func (e *Engine) announce(q *request, g *group, from, to int, has func(int) bool) {
	ev := Event{
		Kind: Stored, Tokens: q.tokens[from*g.BlockSize : to*g.BlockSize : to*g.BlockSize], BlockSize: g.BlockSize,
		LoRAID: q.loraID, LoRAName: q.lora, Group: int(g.index), SpecKind: g.Kind, SpecWindow: g.Window,
		Medium: MediumGPU, CacheSalt: q.salt,
	}
	if from > 0 {
		ev.Parent = &q.hashes[from*g.scale-1]
	}
	if g.scale == 1 && has == nil {
		ev.Hashes, ev.ExtraKeys = q.hashes[from:to:to], e.keysOf(q, from, to)
	} else {
		ev.Hashes, ev.ExtraKeys = e.sparse(q, g, from, to, has)
	}
	e.events = append(e.events, ev)
}

// sparse gathers the hashes and extra keys of the blocks that are there.
func (e *Engine) sparse(q *request, g *group, from, to int, has func(int) bool) ([]blockhash.Digest, []ExtraKey) {
	var hashes []blockhash.Digest
	var keys []ExtraKey
	for at := from; at < to; at++ {
		if has == nil || has(at) {
			hashes = append(hashes, q.hashes[(at+1)*g.scale-1])
			keys = append(keys, q.key(at))
		}
	}
	return hashes, keys
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
