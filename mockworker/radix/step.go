package radix

import (
	"slices"

	"fleetdrill/mockworker/engine"
)

// Step implements engine.Core. The order inside is SGLang's: aborted requests leave, a prefill or a decode
// batch is made, the pass runs, and what it computed goes into the tree. Its events are those of the pass; a
// step without a pass publishes, too, when there is something to say, as SGLang does while it idles.
func (e *Engine) Step(now int64) engine.StepResult {
	e.now = now
	e.outputs, e.batch = e.outputs[:0], e.batch[:0]
	e.log.begin()
	e.dropAborted()
	e.tree.written()
	p := e.schedule(now)
	until := now
	if len(e.batch) > 0 {
		e.steps++
		until += e.cfg.PassTime(p, e.pace, e.steps)
		e.results(until)
		e.averages.Pass(p, until-now)
	}
	e.log.handedOut = true
	worked := len(e.batch)+len(e.outputs)+len(e.log.events) > 0
	if !worked && len(e.waiting) > 0 && e.waiting[0].readyAt > now {
		// On its way to the scheduler; nobody who comes meanwhile is there earlier.
		worked, until = true, e.waiting[0].readyAt
	}
	return engine.StepResult{Worked: worked, Until: until, Outputs: e.outputs, Events: e.log.events}
}

// dropAborted takes the aborted requests out of wherever they are, each with a last output. What a running
// one has computed is kept, as at any other end.
func (e *Engine) dropAborted() {
	if len(e.aborting) == 0 {
		return
	}
	gone := func(q *request) bool { return q.aborted }
	e.running = slices.DeleteFunc(e.running, gone)
	e.waiting = slices.DeleteFunc(e.waiting, gone)
	if e.chunked != nil && e.chunked.aborted {
		e.chunked = nil
	}
	for i, q := range e.aborting {
		e.aborting[i] = nil
		if q.onDevice() {
			e.cache(q, false)
			e.leave(q)
		} else {
			e.waitingUncached -= int64(q.uncached)
			e.full = false // it may have been the one that kept the others waiting
		}
		delete(e.byID, q.id)
		e.counters.FinishedAbort++
		e.outputs = append(e.outputs, engine.Output{
			ID: q.id, Ref: q.ref, Index: -1, Finish: engine.FinishAbort, CachedTokens: q.stats.CachedTokens, Stats: q.finish(engine.FinishAbort),
		})
	}
	e.aborting = e.aborting[:0]
}

// results books what the pass computed, in the order of the batch.
func (e *Engine) results(until int64) {
	for _, s := range e.batch {
		q := s.q
		q.computed += s.n
		if q.computed < len(q.tokens) {
			e.chunked = q
			e.cache(q, true)
			continue
		}
		e.sample(q, until)
		switch {
		case q.left() == 0:
			e.cache(q, false)
			e.leave(q)
		case !s.decode:
			e.cache(q, false)
			e.running = append(e.running, q)
		}
		if q == e.chunked {
			e.chunked = nil
		}
	}
	e.running = slices.DeleteFunc(e.running, func(q *request) bool { return q.left() == 0 })
}

// sample gives a request its next token.
func (e *Engine) sample(q *request, until int64) {
	token := engine.OutputToken(q.draw, len(q.tokens))
	q.tokens = append(q.tokens, token)
	out := engine.Output{ID: q.id, Ref: q.ref, Token: token, Index: q.output() - 1, CachedTokens: q.stats.CachedTokens}
	if out.Index == 0 {
		q.stats.FirstToken = until
		e.counters.PromptTokens += int64(q.prompt)
	}
	q.stats.LastToken = until
	if !q.prefillOnly {
		e.counters.GenerationTokens++
	}
	if q.left() == 0 {
		delete(e.byID, q.id) // the id is free as soon as its last output exists
		e.counters.FinishedLength++
		out.Finish, out.Stats = engine.FinishLength, q.finish(engine.FinishLength)
	}
	e.outputs = append(e.outputs, out)
}

// cache puts the full pages that q has computed into the tree. A page of its own becomes the tree's, or is
// given back when another request was faster.
func (e *Engine) cache(q *request, chunk bool) {
	full := e.fullPages(q.computed)
	if !e.cfg.EnablePrefixCaching || full == 0 {
		return
	}
	q.hash(e.cfg.Hasher, e.cfg.BlockSize, full)
	existing, last := e.tree.insert(q, full, chunk)
	e.free += existing - q.protected
	q.own -= full - q.protected
	q.protected = full
	e.tree.lock(last)
	e.tree.unlock(q.node)
	q.node = last
}
