package radix

import "fleetdrill/mockworker/engine"

// schedule fills the batch. Prompts come first: a pass decodes only when there is no prompt to compute.
func (e *Engine) schedule(now int64) engine.Pass {
	e.prefill(now)
	if len(e.batch) == 0 {
		e.decode()
	}
	var p engine.Pass
	for _, s := range e.batch {
		if s.decode {
			p.Decode(len(s.q.tokens))
		} else {
			p.Prefill(s.n, s.q.computed)
		}
	}
	return p
}

// prefill goes on with the prompt that is being computed, then admits waiting requests first come, first
// served. Pages are taken at the end, for the whole batch.
func (e *Engine) prefill(now int64) {
	budget := e.chunkSize()
	if q := e.chunked; q != nil {
		budget -= e.put(q, budget)
	}
	for budget > 0 && len(e.waiting) > 0 && !e.full && e.places() > 0 {
		q := e.waiting[0]
		if q.readyAt > now {
			break
		}
		last, _ := e.tree.match(q.lora, e.reusable(q))
		last, hit := e.loadBack(last) // locked: what is found must not be evicted to make room for the rest
		if !e.fits(q, hit) {
			e.tree.unlock(last)
			e.full = true
			break
		}
		e.waiting[0] = nil // lets go of its prompt when it ends
		e.waiting = e.waiting[1:]
		e.waitingUncached -= int64(q.uncached)
		q.node, q.protected, q.computed = last, hit, hit*e.cfg.BlockSize
		e.start(q, now)
		budget -= e.put(q, budget)
	}
	e.take()
}

// chunkSize is the token budget of a pass, in whole pages: chunks that are not the last end with a page.
func (e *Engine) chunkSize() int {
	bs := e.cfg.BlockSize
	return max(bs, e.cfg.MaxNumBatchedTokens/bs*bs)
}

// places is how many more requests may run.
func (e *Engine) places() int { return e.cfg.MaxNumSeqs - len(e.running) - len(e.batch) }

// put adds a request's next tokens to the batch and returns what they take of the budget, in whole pages.
func (e *Engine) put(q *request, budget int) (spent int) {
	n := min(len(q.tokens)-q.computed, budget)
	pages := e.pagesFor(q.computed+n) - q.protected - q.own
	e.batch = append(e.batch, scheduled{q: q, n: n, pages: pages})
	return e.pagesFor(n) * e.cfg.BlockSize
}

// start notes a request's first admission; a retracted one that comes back is not counted again.
func (e *Engine) start(q *request, now int64) {
	if q.started {
		return
	}
	q.started = true
	q.stats.Scheduled, q.stats.CachedTokens = now, q.computed
	if e.cfg.EnablePrefixCaching {
		e.counters.PrefixQueries += int64(len(q.tokens))
		e.counters.PrefixHits += int64(q.computed)
		e.averages.Hit(q.computed, len(q.tokens))
	}
}

// take takes the pages of the batch, of which admission made sure.
func (e *Engine) take() {
	need := 0
	for _, s := range e.batch {
		need += s.pages
	}
	e.room(need)
	for _, s := range e.batch {
		s.q.own += s.pages
		e.free -= s.pages
	}
}

// room has at least so many pages free, if it can. SGLang then evicts as many as are asked for, not just
// those that are missing.
func (e *Engine) room(pages int) bool {
	if e.free < pages {
		e.free += e.tree.evict(pages)
	}
	return e.free >= pages
}

// decode gives every running request its next token. When their pages are not to be had it retracts.
func (e *Engine) decode() {
	if len(e.running) == 0 {
		e.ratio = initialRatio // SGLang takes it back when it idles
		return
	}
	if need := e.decodePages(); !e.room(need) {
		e.retractSome()
	} else {
		e.ratio = max(minRatio, e.ratio-ratioStep)
	}
	for _, q := range e.running {
		s := scheduled{q: q, n: 1, pages: e.nextPage(q), decode: true}
		q.own += s.pages
		e.free -= s.pages
		e.batch = append(e.batch, s)
	}
}

// decodePages is how many pages the next token of every running request needs.
func (e *Engine) decodePages() (n int) {
	for _, q := range e.running {
		n += e.nextPage(q)
	}
	return n
}

// nextPage is 1 when the next token begins a page.
func (e *Engine) nextPage(q *request) int {
	return e.pagesFor(q.computed+1) - q.protected - q.own
}
