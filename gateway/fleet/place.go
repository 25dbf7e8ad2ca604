package fleet

import (
	"errors"
	"slices"
	"sync/atomic"

	"fleetdrill/gateway/index"
	"fleetdrill/gateway/policy"
	"fleetdrill/internal/contract"
)

// ErrNoWorker says that no worker is left that could take the request: none registered, none ready, or
// all known dead or tried already.
var ErrNoWorker = errors.New("no worker is available")

// Ask is one request to be placed.
type Ask struct {
	Tokens   int  // prompt tokens
	Streamed bool // progress will show byte by byte
	// Tried are the workers that failed this request; none of them is chosen again.
	Tried []*Worker
	// Score is the worker's best rank for this prompt and the leading tokens that rank caches; nil = no
	// cache matters.
	Score func(*Worker) (rank, tokens int)
	// Deepest is the greatest overlap below a bound, in tokens, and the holders that cache so much, appended
	// to dst; 0 when nobody caches any. It lets a large fleet be placed on without asking Score of every
	// worker; nil = every worker is asked.
	Deepest func(below int, dst []index.Holder) (tokens int, holders []index.Holder)
	// End is called when the fleet ends the request, with a *VetoedError. It must not block.
	End func(cause error)
}

// Request is the guard of one attempt: taken by Place, given back by End exactly once.
type Request struct {
	// Worker, Rank and Overlap (tokens) are where it was placed and what was predicted there; Branch is
	// why.
	Worker  *Worker
	Rank    int
	Overlap int
	Branch  string
	// Held says that some routable worker caches a prefix of the prompt.
	Held bool

	blocked atomic.Bool // the client does not read: nothing is owed

	tokens, uncached   int64
	streamed           bool
	trial              bool // lets the breaker close
	awaited            bool // counted in progress.awaiting
	begun, sent, first int64
	ending, ended      bool
	slot               int
	stop               func(error)
}

// Outcome is how an attempt ended, as far as the worker is concerned.
type Outcome uint8

// The outcomes. Only Failed and Refused count against the worker: what a client did, what the fleet
// itself ended and what an engine rightly declined (4xx, 429) never do.
const (
	Done     Outcome = iota // a complete answer
	Declined                // 4xx, 429, client gone, ended by a veto or at shutdown
	Failed                  // an error status, a time-out or a broken answer
	Refused                 // refused, reset or closed without a complete answer
)

// Place chooses a worker and takes the guard. In this order: a wedged worker that owes nothing is due a
// probe; the policy chooses among the routable, or in a large fleet among some of them; with none routable,
// the least loaded that is not known dead, because a veto steers and never refuses.
func (c *Core) Place(now int64, ask Ask, p *policy.Picker) (*Request, error) {
	c.herd.forget(now)
	if !c.glance(now, ask, p) {
		c.gather(now, ask, func(w *Worker) bool { return c.routable(now, w) })
	}
	if w := c.probeDue(ask); w != nil {
		r := c.begin(now, w, ask, 0, 0, BranchProbe)
		w.probe = r
		return r, nil
	}
	if len(c.cands) > 0 {
		choice := c.choose(now, ask, p)
		w := c.refs[choice.Index]
		return c.begin(now, w, ask, c.ranks[choice.Index], c.cands[choice.Index].Overlap, choice.Branch), nil
	}
	c.gather(now, ask, func(w *Worker) bool { return w.phase == contract.PhaseReady && w.dead == 0 })
	if len(c.cands) == 0 {
		return nil, ErrNoWorker
	}
	i := p.LeastInFlight(c.cands)
	return c.begin(now, c.refs[i], ask, c.ranks[i], c.cands[i].Overlap, BranchFallback), nil
}

// Branches that do not come from a policy.
const (
	BranchProbe    = "probe"
	BranchFallback = "liveness_fallback"
)

// probeDue is a wedged worker that owes nothing and has no probe under way. Retries are not used as
// probes: they have waited once.
func (c *Core) probeDue(ask Ask) *Worker {
	if len(ask.Tried) > 0 || len(c.wedged) == 0 {
		return nil
	}
	c.wedged = slices.DeleteFunc(c.wedged, func(w *Worker) bool { return w.removed || w.hung == 0 })
	if len(c.wedged) == 0 {
		return nil
	}
	for _, w := range c.workers {
		if w.veto() == contract.VetoWedged && w.phase == contract.PhaseReady && len(w.requests) == 0 && w.probe == nil {
			return w
		}
	}
	return nil
}

// gather fills the candidate lists with all that may be chosen.
func (c *Core) gather(now int64, ask Ask, ok func(*Worker) bool) {
	c.nobody()
	for _, w := range c.workers {
		if !slices.Contains(ask.Tried, w) && ok(w) {
			c.consider(now, ask, w)
		}
	}
}

// nobody empties the candidate lists.
func (c *Core) nobody() {
	c.cands, c.refs, c.ranks, c.sample = c.cands[:0], c.refs[:0], c.ranks[:0], policy.Sample{}
}

// consider appends w to the candidate lists.
func (c *Core) consider(now int64, ask Ask, w *Worker) {
	rank, overlap := 0, 0
	if ask.Score != nil {
		rank, overlap = ask.Score(w)
	}
	if n := len(w.Holders); overlap == 0 && n > 1 {
		rank = int(w.dispatches % int64(n)) // nobody holds anything: ranks take turns
	}
	c.refs, c.ranks = append(c.refs, w), append(c.ranks, rank)
	c.cands = append(c.cands, c.candidate(now, w, overlap, ask.Tokens))
}

func (c *Core) candidate(now int64, w *Worker, overlap, prompt int) policy.Candidate {
	cand := policy.Candidate{
		URL: w.URL, BlockSize: w.Spec.KVBlockSize, Prompt: prompt, Overlap: overlap, InFlight: len(w.requests),
		OwnTokens: w.load.ownTotal, OwnUncached: w.load.ownFresh,
		Thin: w.warmth.thin, Young: w.young(now), DivertedNs: w.warmth.divertedAt, Recent: w.warmth.recent,
	}
	usable := w.load.usable(now, c.timing)
	if c.loadAgeOff {
		usable = w.load.have
		cand.OwnTokens, cand.OwnUncached = 0, 0
	}
	if usable {
		r := &w.load.record
		cand.Reported, cand.Waiting, cand.WaitingUncached = true, int(r.Waiting), r.Uncached
		cand.KnowsUncached = r.HasUncached
		cand.Usage, cand.Rate = r.Usage, r.Rate
	}
	return cand
}

func (c *Core) begin(now int64, w *Worker, ask Ask, rank, overlap int, branch string) *Request {
	r := &Request{
		Worker: w, Rank: rank, Overlap: overlap, Branch: branch, Held: held(c.cands),
		tokens: int64(ask.Tokens), uncached: int64(max(0, ask.Tokens-overlap)),
		streamed: ask.Streamed, trial: w.breaker.take(), begun: now, slot: len(w.requests), stop: ask.End,
	}
	w.requests = append(w.requests, r)
	w.held.Add(1)
	w.dispatches++
	w.load.sent(now, r.tokens, r.uncached)
	c.show(now, w)
	return r
}

// Sent reports that the request is fully written: from here on the worker owes progress.
func (c *Core) Sent(now int64, r *Request) {
	if r.ended || r.sent > 0 {
		return
	}
	r.sent = now
	if r.streamed && r.uncached >= measuredTokens {
		r.awaited = true
		r.Worker.progress.await(now)
	}
}

// FirstByte reports the first byte of the answer's body.
func (c *Core) FirstByte(now int64, r *Request) {
	if r.ended || r.first > 0 {
		return
	}
	c.Sent(now, r) // an engine may answer before the transport says that everything is written
	r.first = now
	c.stopAwaiting(now, r, r.uncached)
	r.Worker.lastByte.Store(now)
	c.fold(now, r.Worker)
}

func (c *Core) stopAwaiting(now int64, r *Request, tokens int64) {
	if r.awaited {
		r.awaited = false
		r.Worker.progress.awaited(now, tokens)
	}
}

// End gives the guard back. Only the first call counts; it says so.
func (c *Core) End(now int64, r *Request, o Outcome) bool {
	if r.ended {
		return false
	}
	r.ended = true
	w := r.Worker
	c.release(w, r)
	c.stopAwaiting(now, r, 0)
	v := neutral
	switch o {
	case Done:
		v = success
		w.lastByte.Store(now) // a complete answer is contact and progress
		c.fold(now, w)
	case Failed, Refused:
		v = failure
		w.failures++
		if o == Refused {
			c.Refused(now, w)
		}
	}
	if !c.livenessOff {
		w.breaker.report(now, v, r.trial)
	}
	c.show(now, w)
	return true
}

// release takes r out of its worker's list, moving the last one into its place.
func (c *Core) release(w *Worker, r *Request) {
	last := len(w.requests) - 1
	w.requests[r.slot] = w.requests[last]
	w.requests[r.slot].slot = r.slot
	w.requests[last] = nil
	w.held.Add(-1)
	w.requests = w.requests[:last]
	if w.probe == r {
		w.probe = nil
	}
}
