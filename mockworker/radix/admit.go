package radix

import "cmp"

// SGLang keeps room for the output that running requests are still to give, by a guess: a share of what they
// may give at most, which shrinks while decoding goes well and is set anew by a retraction. The figures are
// the defaults of its environment variables.
const (
	initialRatio = 0.7
	minRatio     = initialRatio * 0.14
	ratioStep    = (initialRatio - minRatio) / 600 // per decode pass
	// retractSteps is how many tokens each request should be able to give after a retraction.
	retractSteps = 20
	// outputClip is the most output tokens of one request that the guess counts.
	outputClip = 4096
)

// fits says whether a waiting request, of which hit pages are cached and locked, may be admitted: its whole
// prompt must find room beside what the batch takes and what the running ones are expected to need. One
// that is alone need not fear for anybody's output, its own neither.
func (e *Engine) fits(q *request, hit int) bool {
	have := e.available() - (e.pagesFor(len(q.tokens)) - hit)
	for _, s := range e.batch {
		have -= e.pagesFor(len(s.q.tokens)) - s.q.protected - s.q.own
	}
	if len(e.running) == 0 && len(e.batch) == 0 {
		return have >= 0
	}
	expected := min(q.left(), outputClip)
	for _, s := range e.batch {
		expected += min(s.q.left(), outputClip)
	}
	share := 0
	for _, r := range e.running {
		share += min(r.left(), outputClip)
	}
	expected += int(e.ratio * float64(share))
	return have >= e.pagesFor(expected)
}

// retractSome sends running requests back to the queue until the others find pages for their next token:
// first who has given least, of those who has the longest prompt. One alone always fits.
func (e *Engine) retractSome() {
	for len(e.running) > 1 {
		victim := 0
		for i, q := range e.running {
			if e.before(q, e.running[victim]) {
				victim = i
			}
		}
		q := e.running[victim]
		e.running = append(e.running[:victim], e.running[victim+1:]...)
		e.retract(q)
		if e.room(e.decodePages()) {
			break
		}
	}
	given, most := 0, 1
	for _, q := range e.running {
		given += q.output() + retractSteps
		most += q.maxTokens
	}
	e.ratio = min(1, float64(given)/float64(most))
}

// before says whether a is retracted rather than b, which is ahead of it in the batch.
func (e *Engine) before(a, b *request) bool {
	return cmp.Or(cmp.Compare(a.output(), b.output()), cmp.Compare(b.prompt, a.prompt)) <= 0
}

// retract takes away what a request has. Its pages in the tree stay there; what was decoded is lost without
// ever having been announced.
func (e *Engine) retract(q *request) {
	e.leave(q)
	q.computed = 0
	q.stats.Preemptions++
	e.counters.Preemptions++
	e.enqueue(q)
}

// leave gives back a request's own pages and its hold on the tree.
func (e *Engine) leave(q *request) {
	e.free += q.own
	e.tree.unlock(q.node)
	q.node, q.protected, q.own = nil, 0, 0
	e.full = false
}
