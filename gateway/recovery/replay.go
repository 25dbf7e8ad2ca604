package recovery

import "fleetdrill/internal/contract"

const (
	// replayIdle is the silence after which a replay counts as broken off: engines lose replay frames,
	// and the end marker with them, at their socket's limit of 1,000 messages.
	replayIdle = 2 * second
	// maxRounds is how often one recovery asks.
	maxRounds = 10
	// emptyWait is the time between two empty answers that together mean a restarted publisher.
	emptyWait = second
	// retryMin doubles to retryMax between calls that failed.
	retryMin, retryMax = second / 10, 5 * second
)

// reason for which the replay is asked.
type reason uint8

const (
	idle         reason = iota
	forStart            // nothing is known of this incarnation: ask from 0
	forReconnect        // is it still the publisher that we know?
	forGap              // batches are missing
	forProbe            // was the last batch lost?
)

// ask is one recovery: a series of replay calls until nothing is missing or nothing helps.
type ask struct {
	why   reason
	id    int64 // of the current call
	open  bool  // a call is out; else one is due at retryAt
	round int

	// Of the current call: the cursor and the lowest and highest waiting batch when it was made (-1 without
	// one), whether anything came, and the highest number.
	startLast, startHead, startTop int64
	answered                       bool
	highest                        int64

	heardAt int64 // last sign of life of the call
	retryAt int64
	failed  bool // the wait is for a failed call, not for a second empty answer
	proven  bool // replay and index agreed on a batch in this recovery
	empty   int  // empty answers after a reconnect
	stuck   int  // complete calls in a row that brought nothing new
	// gapTop is the batch that showed the gap, -1 without one; replayed batches under it were missing.
	gapTop int64
}

// recover begins a recovery.
func (c *cursor) recover(now int64, why reason) {
	c.ask = ask{why: why, gapTop: -1}
	if head, ok := c.held.head(); ok && why == forGap {
		c.ask.gapTop = head.seq
	}
	if why != forProbe {
		c.setStream(contract.StreamReplaying)
	}
	c.send(now)
}

// send makes a replay call from the cursor on: its first batch is the one that we know.
func (c *cursor) send(now int64) {
	c.asks++
	a := &c.ask
	a.id, a.open, a.failed, a.heardAt = c.asks, true, false, now
	a.answered, a.highest = false, -1
	a.startLast, a.startHead, a.startTop = c.last, -1, -1
	if n := len(c.held.list); n > 0 {
		a.startHead, a.startTop = c.held.list[0].seq, c.held.list[n-1].seq
	}
	c.do(action{kind: doAsk, id: a.id, from: max(c.last, 0), jitter: a.why == forGap && a.round == 0})
}

// cancel ends the recovery, if one is on.
func (c *cursor) cancel() {
	if c.ask.why != idle && c.ask.open {
		c.do(action{kind: doCancel})
	}
	c.ask = ask{}
}

// finish ends the recovery; the stream is live.
func (c *cursor) finish(now int64) {
	if c.ask.why == forProbe {
		c.probeGap = min(2*c.probeGap, probeMax)
	} else {
		c.probeOwed, c.begun = true, true
		c.distrust = c.distrust && c.ask.why != forGap
	}
	c.cancel()
	c.quietSince = now
	c.setStream(contract.StreamLive)
}

// replayed is a batch out of replay call id.
func (c *cursor) replayed(now, id int64, m message) {
	a := &c.ask
	if a.why == idle || !a.open || a.id != id {
		return
	}
	first := !a.answered
	a.answered, a.heardAt, a.highest = true, now, max(a.highest, m.seq)
	switch {
	case m.seq <= c.last:
		c.compare(m)
	case first && c.last >= 0:
		// The buffer starts behind our cursor: whose it is cannot be told (rung 4), whatever an earlier call
		// has proven, because the publisher may be another one since.
		c.lose(m.seq)
		c.refill(now, m)
	case m.seq == c.last+1:
		c.refill(now, m)
	case first && c.last < 0 && a.why == forStart:
		c.setQuality(contract.QualityPartial) // the buffer has rolled
		c.refill(now, m)
	default:
		c.keepBeyond(m)
	}
}

// compare checks a replayed batch that is applied already.
func (c *cursor) compare(m message) {
	switch known, ok := c.history.get(m.seq); {
	case ok && known != m.hash && !c.restartBlind:
		c.restart(contract.RestartReplay, contract.QualityExact)
		// The subscription may still bring batches of the publisher that is gone. A fresh one cannot.
		c.resubscribe()
	case ok:
		c.ask.proven = true
	}
}

// refill applies the next batch from a replay.
func (c *cursor) refill(now int64, m message) {
	if head, ok := c.held.head(); ok && head.seq == m.seq {
		if head.hash != m.hash {
			c.contradiction("stream and replay differ", m.seq)
			return
		}
		c.held.pop()
		m.live = head.live
	}
	c.countReplayed(m)
	if c.coverFrom < 0 {
		c.coverFrom = m.seq
	}
	c.coverTo = max(c.coverTo, m.seq)
	c.ask.proven = true
	c.accept(m)
	if m.live && c.ask.why != forProbe {
		// Both sides had this batch: the waiting ones follow it, and the rest of the replay is not needed.
		if c.drain(); len(c.held.list) == 0 {
			c.finish(now)
		}
	}
}

// keepBeyond keeps a replayed batch from behind a hole.
func (c *cursor) keepBeyond(m message) {
	at, there := c.held.find(m.seq)
	switch {
	case !there:
		c.held.put(at, m)
	case c.held.list[at].hash != m.hash:
		c.contradiction("stream and replay differ", m.seq)
	}
}

// drain applies the waiting batches that follow the cursor.
func (c *cursor) drain() {
	for {
		head, ok := c.held.head()
		if !ok || head.seq > c.last+1 {
			return
		}
		c.held.pop()
		if head.seq == c.last+1 {
			c.countReplayed(head)
			c.accept(head)
		}
	}
}

// countReplayed counts a batch that is about to be applied and that only the replay brought.
func (c *cursor) countReplayed(m message) {
	if m.live {
		return
	}
	c.counters.Replayed++
	if m.seq < c.ask.gapTop {
		c.counters.Refilled++
	}
}

// replayEnd is the end marker of replay call id.
func (c *cursor) replayEnd(now, id int64) {
	a := &c.ask
	if a.why == idle || !a.open || a.id != id {
		return
	}
	a.open = false
	switch {
	case a.why == forProbe:
		c.endProbe(now)
	case !a.answered && c.last >= 0:
		c.emptyAnswer(now)
	default:
		c.settle(now)
	}
}

// emptyAnswer takes the end marker alone, in answer to a call from a batch that we have.
func (c *cursor) emptyAnswer(now int64) {
	a := &c.ask
	_, waiting := c.held.head()
	switch {
	case a.why != forReconnect:
		c.giveUp(now) // the replay is at fault
	case a.empty == 0:
		// The publisher is below our cursor, or has forgotten. Its first live batch will tell, or silence.
		a.empty = 1
		if a.retryAt = now + emptyWait; waiting {
			c.send(now)
		}
	case waiting && a.startHead >= 0:
		c.giveUp(now) // it published above our cursor and does not remember: at fault
	case waiting:
		c.send(now)
	case c.restartBlind:
		c.finish(now)
	default:
		c.restart(contract.RestartEmpty, contract.QualityExact)
		c.resubscribe()
	}
}

// vouch takes a live batch that we know: after a reconnect it says that the publisher is the same. If the replay
// has nothing from the newest batch on, an older one says the opposite: who sent it has yet to reach our cursor,
// and we know it because two publishers' batches were taken for one's.
func (c *cursor) vouch(now, seq int64) {
	denied := c.ask.why == forReconnect && c.ask.empty > 0
	if denied && seq < c.last {
		return
	}
	c.doubted = false
	if denied {
		c.settle(now)
	}
}

// settle looks at what a complete answer has left open.
func (c *cursor) settle(now int64) {
	a := &c.ask
	head, waiting := c.held.head()
	short := waiting && a.highest < head.seq // the replay did not reach what the stream brought
	if !short {
		c.drain()
		_, waiting = c.held.head()
	}
	switch a.round++; {
	case !waiting:
		c.finish(now)
	case a.round >= maxRounds:
		c.giveUp(now)
	case short && head.seq > a.startTop:
		c.send(now) // the batch came after the call was made: now it must be there
	case short && c.distrust:
		c.giveUp(now)
	case short:
		c.distrust = true
		c.contradiction("the replay ends before the stream", head.seq)
	case c.last == a.startLast && a.stuck > 0:
		c.giveUp(now) // twice complete around the same hole: nobody has these batches
	default:
		if a.stuck++; c.last != a.startLast {
			a.stuck = 0
		}
		c.send(now)
	}
}

// giveUp goes on without what the replay could not fill (rung 4).
func (c *cursor) giveUp(now int64) {
	_, waiting := c.held.head()
	switch {
	case waiting || c.ask.proven:
	case c.last < 0: // what the engine published before, if anything
		c.setQuality(contract.QualityPartial)
	default:
		c.lose(c.last + 1)
	}
	for {
		c.drain()
		head, ok := c.held.head()
		if !ok {
			break
		}
		c.lose(head.seq)
		c.held.pop()
		c.countReplayed(head)
		c.accept(head)
	}
	c.finish(now)
}

// endProbe ends a look at the end of the stream; one that found a hole becomes a recovery.
func (c *cursor) endProbe(now int64) {
	c.drain()
	if head, waiting := c.held.head(); waiting {
		c.gap(head.seq)
		c.recover(now, forGap)
		return
	}
	c.finish(now)
}

// replayFailed says that replay call id could not be made or broke.
func (c *cursor) replayFailed(now, id int64) {
	a := &c.ask
	if a.why == idle || !a.open || a.id != id {
		return
	}
	a.open = false
	c.unanswered(now, min(retryMin<<a.round, retryMax))
}

// unanswered asks again after a wait, as long as that may help.
func (c *cursor) unanswered(now, wait int64) {
	a := &c.ask
	switch a.round++; {
	case a.why == forProbe:
		c.endProbe(now)
	case a.round >= maxRounds:
		c.giveUp(now)
	case wait == 0:
		c.send(now)
	default:
		a.failed, a.retryAt = true, now+wait
	}
}

// tick asks again when a call has fallen silent or the wait for the next is over.
func (a *ask) tick(c *cursor, now int64) {
	switch {
	case !a.open && now >= a.retryAt:
		c.send(now)
	case a.open && now >= a.heardAt+replayIdle:
		a.open = false
		c.do(action{kind: doCancel})
		c.unanswered(now, 0)
	}
}
