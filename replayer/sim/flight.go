package sim

import (
	"fleetdrill/gateway/fleet"
	"fleetdrill/gateway/proxy"
	"fleetdrill/oracle"
	"fleetdrill/replayer/plan"
	"fleetdrill/replayer/result"
)

// flight is one client request over all its attempts.
type flight struct {
	q      *plan.Request
	rec    result.Request
	tried  []*fleet.Worker
	lastNs int64 // instant of the newest token
}

// attempt is one placement of a flight. Engines know it by its place in the list of all.
type attempt struct {
	flight *flight
	worker *worker
	guard  *fleet.Request
	over   bool // the guard is given back; what still comes is not listened to
}

// newRecord is the record of a request that has not happened.
func newRecord(n int, q *plan.Request) result.Request {
	return result.Request{
		TimestampMs: float64(q.Row.StampNs) / 1e6, Input: q.Row.Input, Output: q.Row.Output, Session: q.Row.Session, IDs: q.Row.IDs,
		N: n, Row: q.Row.N, ID: q.ID, Warmup: q.Warmup, ScheduledNs: q.OffsetNs,
		PlacedNs: -1, EngineNs: -1, PromptTokens: q.PromptTokens, MaxTokens: q.MaxTokens, Predicted: -1,
		Best: -1, Held: -1, StalenessNs: -1, Outcome: result.Open,
	}
}

// since is the time from a request's scheduled instant until now.
func (s *sim) since(f *flight) int64 { return s.now - origin - f.rec.ScheduledNs }

// place chooses a worker for a flight and sends the request there.
func (s *sim) place(f *flight, p *prompt) {
	guard, err := s.gate.place(f, p, len(s.attempts))
	if err != nil {
		s.prompts.done(p)
		s.fail(f, err)
		return
	}
	w := s.gate.workerOf(guard.Worker)
	s.attempts = append(s.attempts, attempt{flight: f, worker: w, guard: guard})
	f.rec.Worker, f.rec.Attempts = w.id, f.rec.Attempts+1
	f.rec.PlacedNs, f.rec.StalenessNs = s.since(f), s.gate.staleness()
	f.rec.Predicted = proxy.Predicted(guard.Overlap, len(p.tokens), s.c.BlockSize)
	s.truth(f, p, w)
	w.letters.push(letter{ref: len(s.attempts) - 1, prompt: p})
	s.after(s.c.LinkDelay, submitted, w)
}

// truth asks every engine what it holds of the prompt now.
func (s *sim) truth(f *flight, p *prompt, chosen *worker) {
	best := 0
	for _, w := range s.workers {
		depth := w.eng.MatchHashes(p.hashes)
		best = max(best, depth)
		if w == chosen {
			f.rec.Held = oracle.Tokens(depth, s.c.BlockSize, len(p.tokens))
		}
	}
	f.rec.Best = oracle.Tokens(best, s.c.BlockSize, len(p.tokens))
}

// tokensArrive gives the outputs of a pass to the gateway and its clients.
func (s *sim) tokensArrive(w *worker) {
	outs := w.outputs.pop()
	for i := range outs {
		if a := &s.attempts[outs[i].ref]; !a.over {
			s.output(a, &outs[i])
		}
	}
	s.gate.settle()
	w.free = append(w.free, outs[:0])
}

// output is one token of an answer, or its refusal.
func (s *sim) output(a *attempt, out *output) {
	f := a.flight
	switch {
	case out.err != nil:
		s.release(a, fleet.Declined)
		s.fail(f, out.err)
		return
	case out.index == 0:
		f.rec.TTFTNs = s.since(f)
		if n := f.q.MaxTokens - 1; n > 0 {
			f.rec.GapsNs = make([]int64, 0, n)
		}
		s.gate.core.FirstByte(s.now, a.guard)
	default:
		f.rec.GapsNs = append(f.rec.GapsNs, s.now-f.lastNs)
		s.gate.heard(a)
	}
	f.lastNs = s.now
	if st := out.stats; st != nil {
		s.release(a, fleet.Done)
		f.rec.E2ENs, f.rec.EngineNs = s.since(f), st.Scheduled-origin-f.rec.ScheduledNs
		f.rec.Cached, f.rec.OutputTokens, f.rec.Preemptions = st.CachedTokens, st.Output, st.Preemptions
		s.end(f, result.OK)
	}
}

// release gives an attempt's guard back.
func (s *sim) release(a *attempt, o fleet.Outcome) {
	a.over = true
	s.gate.members[a.worker.n].inFlight--
	s.gate.core.End(s.now, a.guard, o)
	a.guard = nil
}

// move ends an attempt that the fleet wants ended; its request goes elsewhere while nothing of an answer has
// been seen.
func (s *sim) move(ref int, cause error) {
	a := &s.attempts[ref]
	if a.over {
		return
	}
	f, w := a.flight, a.worker
	f.tried = append(f.tried, a.guard.Worker)
	s.release(a, fleet.Declined)
	w.letters.push(letter{ref: ref})
	s.after(s.c.LinkDelay, submitted, w)
	if !proxy.MayMove(f.rec.TTFTNs > 0, f.rec.Attempts, s.c.Retries) {
		s.fail(f, cause)
		return
	}
	s.gate.counters.Retries++
	p := new(prompt)
	s.maker.fill(p, f.q)
	s.place(f, p)
}

func (s *sim) fail(f *flight, err error) {
	f.rec.Error, f.rec.E2ENs = err.Error(), s.since(f)
	s.end(f, result.Failed)
}

func (s *sim) end(f *flight, outcome string) {
	f.rec.Outcome = outcome
	s.ended++
	s.lastEnd = s.now
}
