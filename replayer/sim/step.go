package sim

import "fleetdrill/mockworker/engine"

// submitted takes in what reaches a worker. A worker between two passes that has nothing to do begins at
// once; otherwise the letter lies until the pass is over.
func (s *sim) submitted(w *worker) {
	l := w.letters.pop()
	if l.prompt != nil {
		s.gate.sent(&s.attempts[l.ref])
	}
	w.mail = append(w.mail, l)
	if !w.stepping {
		s.begin(w)
	}
}

// begin reads the mail and begins a pass, if there is anything to do.
func (s *sim) begin(w *worker) {
	s.readMail(w)
	w.step, w.began = w.eng.Step(s.now), s.now
	w.stepping = w.step.Worked
	if !w.stepping {
		w.look(0, 0)
		s.wakeForRemovals(w)
		return
	}
	s.queue.push(w.step.Until, stepEnds, w.n)
}

func (s *sim) readMail(w *worker) {
	for i, l := range w.mail {
		w.mail[i] = letter{}
		a := &s.attempts[l.ref]
		if l.prompt == nil {
			w.eng.Abort(s.now, a.flight.rec.ID)
			continue
		}
		err := w.eng.Add(s.now, engine.Request{
			ID: a.flight.rec.ID, Ref: l.ref, Tokens: l.prompt.tokens, Hashes: l.prompt.hashes, MaxTokens: a.flight.q.MaxTokens,
		})
		s.prompts.done(l.prompt)
		if err != nil {
			s.answer(w, append(w.buffer(), output{ref: l.ref, err: err}))
		}
	}
	w.mail = w.mail[:0]
}

// stepEnds publishes what a pass did, gives out its tokens and begins the next one, in the order of the live
// worker: who has the last token of a request finds its blocks announced.
func (s *sim) stepEnds(w *worker) {
	decoded := 0
	outs := w.buffer()
	for i := range w.step.Outputs {
		out := &w.step.Outputs[i]
		if out.Index < 0 {
			continue // its client hung up and listens no more
		}
		if out.Index > 0 {
			decoded++
		}
		outs = append(outs, output{ref: out.Ref, index: out.Index, stats: out.Stats})
	}
	w.look(decoded, s.now-w.began)
	s.announce(w, w.late.Filter(s.now, w.step.Events))
	s.answer(w, outs)
	s.begin(w)
}

// announce publishes events as a batch, if there are any.
func (s *sim) announce(w *worker, events []engine.Event) {
	if len(events) == 0 {
		return
	}
	b, memory := w.batcher.batch(float64(s.now)/float64(second), events)
	w.kept = append(w.kept, b)
	s.batches++
	s.publish(w, published{batch: b, memory: memory, record: w.record, at: s.now})
}

// wakeForRemovals sees to it that what an idle worker holds back goes out in time. While it steps, its steps
// do.
func (s *sim) wakeForRemovals(w *worker) {
	if at, ok := w.late.Next(); ok {
		s.queue.push(max(at, s.now), removalsDue, w.n)
	}
}

func (s *sim) removalsDue(w *worker) {
	if w.stepping {
		return
	}
	s.announce(w, w.late.Due(s.now))
	s.wakeForRemovals(w)
}

// publish sends a batch, or a load record alone, on its way to the gateway.
func (s *sim) publish(w *worker, p published) {
	w.batches.push(p)
	s.after(s.c.EventDelay, batchArrives, w)
}

// answer sends outputs on their way to their clients.
func (s *sim) answer(w *worker, outs []output) {
	if len(outs) == 0 {
		w.free = append(w.free, outs)
		return
	}
	w.outputs.push(outs)
	s.after(s.c.LinkDelay, tokensArrive, w)
}
