package engine

import "slices"

// Step schedules one model pass that begins at now, and returns what it yields and when. The order inside
// is vLLM's: aborted requests leave, running ones get their tokens, then waiting ones are admitted, then the
// pass runs, and who ends with it gives its blocks back at once: whoever has a last token finds the request
// counted no more.
func (e *Engine) Step(now int64) StepResult {
	e.outputs, e.batch = e.outputs[:0], e.batch[:0]
	e.before = e.appendSums(e.before[:0])
	e.dropAborted()
	w := e.schedule(now)
	if len(e.batch) == 0 {
		return e.idle(now)
	}
	e.steps++
	until := now + e.cfg.PassTime(w, e.pace, e.steps)
	ended := false
	for _, s := range e.batch {
		ended = e.advance(s, until) || ended
	}
	if ended {
		e.freeFinished()
	}
	e.noteRate(w, until-now)
	if e.host != nil {
		e.events = append(e.events, e.host.events...)
	}
	e.handedOut = true
	return StepResult{Worked: true, Until: until, Outputs: e.outputs, Events: e.events}
}

// idle is a step without a model pass. While a request is on its way to the scheduler it lasts until that
// one is there; nobody who comes meanwhile is there earlier.
func (e *Engine) idle(now int64) StepResult {
	r := StepResult{Worked: len(e.outputs) > 0, Until: now, Outputs: e.outputs}
	if !r.Worked && e.waiting.len() > 0 {
		if at := e.waiting.soonest(); at > now {
			r.Worked, r.Until = true, at
		}
	}
	return r
}

// freeFinished frees the requests that produced their last output, in running order.
func (e *Engine) freeFinished() {
	e.running = slices.DeleteFunc(e.running, func(q *request) bool {
		if q.finished {
			e.release(q)
		}
		return q.finished
	})
}

// dropAborted takes the aborted requests out of wherever they are, each with a last output.
func (e *Engine) dropAborted() {
	if len(e.aborting) == 0 {
		return
	}
	gone := func(q *request) bool { return q.aborted }
	e.running = slices.DeleteFunc(e.running, gone)
	e.waiting.deleteFunc(gone)
	for i, q := range e.aborting {
		e.aborting[i] = nil
		if !q.onDevice() {
			e.waitingUncached -= int64(q.uncached)
		}
		e.release(q)
		delete(e.byID, q.id)
		e.counters.FinishedAbort++
		e.outputs = append(e.outputs, Output{
			ID: q.id, Ref: q.ref, Index: -1, Finish: FinishAbort, CachedTokens: q.stats.CachedTokens, Stats: q.finish(FinishAbort),
		})
	}
	e.aborting = e.aborting[:0]
}

// release gives all blocks of a request back, group by group.
func (e *Engine) release(q *request) {
	for i := range q.tables {
		t := &q.tables[i]
		e.pool.release(t.blocks)
		*t = blockTable{blocks: t.blocks[:0]}
	}
	e.usedTokens -= int64(q.computed)
	q.computed = 0
}

// advance books the computed tokens of one request and samples its next token when nothing of it is left
// to compute: only the last chunk of a prompt yields a token. It tells whether that was the last one.
func (e *Engine) advance(s scheduled, until int64) (ended bool) {
	q := s.q
	q.computed += s.n
	e.usedTokens += int64(s.n)
	if q.computed < len(q.tokens) {
		return false
	}
	token := q.nextToken()
	q.tokens = append(q.tokens, token)
	out := Output{ID: q.id, Ref: q.ref, Token: token, Index: q.output() - 1, CachedTokens: q.stats.CachedTokens}
	if out.Index == 0 {
		q.stats.FirstToken = until
		e.counters.PromptTokens += int64(q.prompt)
	}
	q.stats.LastToken = until
	e.counters.GenerationTokens++
	if q.output() == q.maxTokens {
		q.finished = true
		delete(e.byID, q.id) // the id is free as soon as its last output exists
		e.counters.FinishedLength++
		out.Finish, out.Stats = FinishLength, q.finish(FinishLength)
	} else if e.cfg.EnablePrefixCaching {
		q.extendHashes(e.cfg.Hasher, e.hashSize)
	}
	e.outputs = append(e.outputs, out)
	return q.finished
}

// beginEvents starts a new list of events unless the present one has not been handed out.
func (e *Engine) beginEvents() {
	if e.handedOut {
		e.dropEvents()
	}
}

// dropEvents forgets the events there are.
func (e *Engine) dropEvents() {
	e.events, e.removed, e.handedOut = e.events[:0], e.removed[:0], false
	if e.host != nil {
		e.host.begin()
	}
}
