package engine

// schedule fills the batch: one token budget, running requests first in order of admission, then waiting
// ones in the order of the policy.
func (e *Engine) schedule(now int64) Pass {
	e.beginEvents()
	budget, preempted := e.scheduleRunning(e.cfg.MaxNumBatchedTokens)
	for preempted && len(e.batch) == 0 {
		// By priority the first in turn may have to make room for the others. A step that computes nothing
		// takes no time, so theirs comes at once.
		e.scheduleRunning(e.cfg.MaxNumBatchedTokens)
	}
	if !preempted { // a step that threw one out has no room for others
		e.admit(now, budget)
	}
	return e.pass()
}

// scheduleRunning gives every running request its tokens while the budget lasts. One that finds no block
// throws out victims, in the end itself. A victim that had its tokens already gives them back.
func (e *Engine) scheduleRunning(budget int) (left int, preempted bool) {
	for e.next = 0; e.next < len(e.running) && budget > 0; e.next++ {
		q := e.running[e.next]
		n := e.chunk(q, q.computed, budget)
		for !e.allocate(q, nil, n) {
			preempted = true
			victim, back := e.preemptOne()
			if budget += back; victim == q {
				return budget, preempted
			}
		}
		budget -= n
		e.put(q, n)
	}
	return budget, preempted
}

// chunk is how many tokens a request computes next, behind those computed.
func (e *Engine) chunk(q *request, computed, budget int) int {
	n := len(q.tokens) - computed
	if most := e.cfg.LongPrefillTokenThreshold; most > 0 {
		n = min(n, most)
	}
	return min(n, budget)
}

// preemptOne sends a victim back to the queue, in front of its equals, and returns the tokens that it had
// in this step. Its blocks stay cached, so it may find them again; everything else is computed anew, its
// output so far as part of the prompt.
func (e *Engine) preemptOne() (q *request, back int) {
	at := e.victim()
	q = e.running[at]
	copy(e.running[at:], e.running[at+1:])
	e.running[len(e.running)-1] = nil
	e.running = e.running[:len(e.running)-1]
	if at < e.next {
		e.next--
	}
	e.release(q)
	q.stats.Preemptions++
	e.counters.Preemptions++
	e.enqueue(q)
	e.waiting.pushBack(q, e.cfg.SchedulingPolicy)
	return q, e.takeBack(q)
}

// victim is the running request to throw out: the one admitted last, or by priority the one that is worth
// least and among equals arrived last.
func (e *Engine) victim() int {
	worst := len(e.running) - 1
	if e.cfg.SchedulingPolicy != PolicyPriority {
		return worst
	}
	for i, q := range e.running {
		if e.running[worst].before(q) {
			worst = i
		}
	}
	return worst
}

// takeBack takes a victim out of the batch. What its share stored stays stored: the events are queued, and
// vLLM does not take them back either.
func (e *Engine) takeBack(q *request) int {
	for i := range e.batch {
		if e.batch[i].q == q {
			n := e.batch[i].n
			e.batch = append(e.batch[:i], e.batch[i+1:]...)
			return n
		}
	}
	return 0
}

// admit takes waiting requests in while there are budget, places and blocks. The first that does not fit
// keeps the others waiting.
func (e *Engine) admit(now int64, budget int) {
	for budget > 0 && len(e.running) < e.cfg.MaxNumSeqs {
		at, ok := e.waiting.ready(now, e.cfg.SchedulingPolicy)
		if !ok {
			return
		}
		q := e.waiting.items[at]
		hit := e.lookup(q)
		n := e.chunk(q, e.found(hit), budget)
		if !e.allocate(q, hit, n) {
			return
		}
		e.waiting.take(at)
		e.waitingUncached -= int64(q.uncached)
		e.running = append(e.running, q)
		e.start(q, now, hit)
		budget -= n
		e.put(q, n)
	}
}

// start notes a request's first admission; a preempted one that comes back is not counted again.
func (e *Engine) start(q *request, now int64, hit *prefix) {
	if q.started {
		return
	}
	q.started = true
	found := e.found(hit)
	q.stats.Scheduled, q.stats.CachedTokens = now, found
	if !e.cfg.EnablePrefixCaching || q.fresh {
		return
	}
	e.hitRate.add(float64(found) / float64(len(q.tokens)))
	e.counters.PrefixQueries += int64(len(q.tokens))
	e.counters.PrefixHits += int64(hit.tokens)
	if e.host != nil { // a connector is asked for what the device has not
		e.counters.ExternalQueries += int64(len(q.tokens) - hit.tokens)
		e.counters.ExternalHits += int64(found - hit.tokens)
	}
}

// put adds a request's n tokens to the batch.
func (e *Engine) put(q *request, n int) { e.batch = append(e.batch, scheduled{q, n}) }

// pass is what the batch computes. A single token behind a computed prompt is decoding, anything else a
// prefill chunk.
func (e *Engine) pass() (p Pass) {
	for _, s := range e.batch {
		if q := s.q; s.n == 1 && q.output() > 0 && q.computed+1 == len(q.tokens) {
			p.Decode(len(q.tokens))
		} else {
			p.Prefill(s.n, q.computed)
		}
	}
	return p
}
