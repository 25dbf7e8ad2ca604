package fleet

// Record is one answer of a worker's load source. Steps counts scheduler steps since the engine
// started and is only meaningful with HasSteps; Uncached are the tokens that the waiting have to compute,
// 0 when the engine does not report them, which HasUncached tells from none.
type Record struct {
	Running, Waiting int64
	Uncached         int64
	HasUncached      bool
	Usage            float64 // of the KV pool, 0..1
	Rate             float64 // generation rate, tokens/s; 0 = not reported
	Steps            int64
	HasSteps         bool
	Pool             int // KV blocks of the engine; 0 = not reported
}

// maxOwn bounds the dispatches kept per worker; beyond it the oldest are forgotten.
const maxOwn = 8192

// load is the last record of a worker and what we sent there since.
type load struct {
	have     bool
	record   Record
	asked    int64 // mono ns at which the last poll was sent
	sampled  int64 // instant that the record describes
	fresh    int64 // instant at which the record last told something new
	own      []dispatch
	ownTotal int64 // prompt tokens of own
	ownFresh int64 // those of them that the worker has to compute
}

// dispatch is one of our requests: its prompt tokens, and those of them expected not to be cached.
type dispatch struct{ at, tokens, uncached int64 }

// sent notes a dispatch, which no record can contain yet.
func (l *load) sent(now, tokens, uncached int64) {
	if len(l.own) == maxOwn {
		l.forget(l.own[0])
		l.own = l.own[1:]
	}
	l.own = append(l.own, dispatch{now, tokens, uncached})
	l.ownTotal += tokens
	l.ownFresh += uncached
}

func (l *load) forget(d dispatch) {
	l.ownTotal -= d.tokens
	l.ownFresh -= d.uncached
}

// take stores a record sampled at some time after asked. While the worker has work, a step counter that
// stands still means a frozen report, which grows old; an idle engine may rightly repeat itself.
func (l *load) take(asked int64, r Record, busy bool) (stepped bool) {
	stepped = l.have && r.HasSteps && l.record.HasSteps && r.Steps != l.record.Steps
	if !l.have || stepped || !r.HasSteps || !busy {
		l.fresh = asked
	}
	l.have, l.record, l.sampled = true, r, asked
	n := 0
	for n < len(l.own) && l.own[n].at <= asked {
		l.forget(l.own[n])
		n++
	}
	l.own = append(l.own[:0], l.own[n:]...)
	return stepped
}

// usable says whether the record may be priced.
func (l *load) usable(now int64, t Timing) bool {
	return l.have && now-l.fresh <= int64(t.LoadMaxAge)
}

// SetLoadAgeOff switches the handicap of that name: while on, a record is priced however old it is, and
// nothing that was sent since corrects it.
func (c *Core) SetLoadAgeOff(on bool) { c.loadAgeOff = on }

func (l *load) waiting(now int64, t Timing) int64 {
	if !l.usable(now, t) {
		return 0
	}
	return l.record.Waiting
}

// stepsKnown says whether the step counter is being read: the last answer is recent.
func (l *load) stepsKnown(now int64, t Timing) bool {
	return l.have && l.record.HasSteps && now-l.sampled <= int64(t.LoadMaxAge)
}

// PollDone reports a poll sent at asked. answered: the worker said something, even if it was not a load
// record (then r is nil).
func (c *Core) PollDone(now, asked int64, w *Worker, answered bool, r *Record) {
	w.polling = false
	w.load.asked = asked
	if w.removed || !answered {
		return
	}
	c.contact(now, w)
	if r != nil && r.Pool > 0 {
		w.warmth.pool = r.Pool
	}
	before := w.load.sampled
	if r != nil && w.load.take(asked, *r, len(w.requests) > 0) && w.progress.last <= before {
		// The steps were made between the two samples. When something else moved after the first one, they
		// may all have been made before that, and tell nothing newer.
		c.moved(asked, w)
	}
	c.show(now, w)
}
