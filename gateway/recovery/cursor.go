package recovery

import "fleetdrill/internal/contract"

const (
	second = int64(1e9) // ns

	// farBelow is how far under the cursor a batch whose payload we no longer know means a restart.
	farBelow = 1024
	// probeAfter is the silence after which the end of the stream is checked while work is in flight;
	// probeMax is what it doubles to while nothing is found, because a replay stops the engine's publishing.
	probeAfter, probeMax = second, 8 * second
)

// cursor decides what each thing that arrives from one publisher means. Inputs are methods with the time
// in monotonic ns; what must be done is collected in out.
//
// `last` is the last sequence number applied, -1 before the first of an incarnation.
type cursor struct {
	replayable bool // there is a replay to ask
	handicaps

	last    int64
	epoch   int64
	stream  string
	quality string
	turn    turnover
	// hostTurn is the host tier's.
	hostTurn turnover
	// effects counts the accepted batches that are applied, doubtedAt those that were accepted when the
	// quality last changed: batches are accepted many at a time.
	effects, doubtedAt int64

	// begun is set once the sequence has a first number: after any batch, or after a replay from 0 that
	// was complete, even if empty.
	begun bool
	// connected is whether a subscription stands; met whether one ever did.
	connected, met bool
	// liveLast is the highest live number of this connection, -1 before the first. Live numbers up to
	// coverTo and from coverFrom on repeat what a replay brought since this connection began.
	liveLast, coverFrom, coverTo int64
	// liveFirst is the number that this connection's stream began with; 0 if it began with a batch that we had,
	// -1 before the first.
	liveFirst int64
	// doubted is set by a reconnect that no replay can vouch for.
	doubted bool
	// died says that liveness found the worker dead since the last connection.
	died bool
	// distrust is set while a fresh subscription settles a contradiction between stream and replay, so
	// that the next one is the replay's fault.
	distrust bool

	history history
	held    held
	ask     ask
	asks    int64 // ids given to replay calls

	// quietSince is the last new live batch or the end of the last replay; probeOwed asks for one look at
	// the end of the stream after a reconnect.
	quietSince int64
	probeOwed  bool
	probeGap   int64

	counters contract.RankCounters
	// out are the actions to carry out, in order; whoever does so empties it.
	out []action
}

func newCursor(replayable bool) *cursor {
	return &cursor{
		replayable: replayable, last: -1, epoch: 1, probeGap: probeAfter,
		liveFirst: -1, liveLast: -1, coverFrom: -1, coverTo: -1,
		stream: contract.StreamDown, quality: contract.QualityExact,
		counters: contract.RankCounters{Resyncs: map[string]int64{}, Restarts: map[string]int64{}},
	}
}

func (c *cursor) do(a action) { c.out = append(c.out, a) }

func (c *cursor) note(what string, attrs ...any) {
	c.do(action{kind: doNote, note: what, attrs: attrs})
}

// up says that a subscription stands.
func (c *cursor) up(now int64) {
	c.connected, c.liveFirst, c.liveLast, c.coverFrom, c.coverTo = true, -1, -1, -1, -1
	c.quietSince = now
	if !c.met {
		c.met = true
		c.counters.Resyncs[contract.ResyncFirst]++
	}
	died := c.died
	c.died = false
	switch {
	case c.replayable && c.last >= 0:
		c.recover(now, forReconnect)
	case c.replayable:
		c.recover(now, forStart)
	case c.begun && died && !c.restartBlind:
		c.restart(contract.RestartReconnect, contract.QualityExact)
		c.setStream(contract.StreamLive)
	default:
		c.doubted = c.begun
		c.setStream(contract.StreamLive)
	}
}

// down says that the subscription broke. What it held is asked for again by the next one.
func (c *cursor) down() {
	c.connected = false
	c.cancel()
	c.held.reset()
	c.setStream(contract.StreamDown)
}

// dead says that liveness found the worker dead.
func (c *cursor) dead() { c.died = true }

// nudge says that the worker was heard on another path: a replay call that waits is made now.
func (c *cursor) nudge(now int64) {
	if c.ask.why != idle && !c.ask.open && c.ask.failed {
		c.send(now)
	}
}

// live is a batch that came by subscription.
func (c *cursor) live(now int64, m message) {
	if !c.connected {
		return // left over from a subscription that was dropped
	}
	m.live = true
	switch {
	case c.backwards(m):
		c.contradiction("the stream ran backwards", m.seq)
		return
	case c.begun && m.seq <= c.last:
		c.below(now, m)
		return
	case c.holding():
		c.hold(now, m)
	case m.seq == c.last+1 && !c.doubted:
		c.contact(now)
		c.accept(m)
		c.distrust = false
	default:
		c.above(now, m)
	}
	c.liveLast = max(c.liveLast, m.seq)
	if c.liveFirst < 0 {
		c.liveFirst = m.seq
	}
}

// backwards reports whether the stream, in front of m, brought batches with higher numbers that hang on
// nothing it brought itself. A reordered batch cannot be told from a restarted publisher's, so those may be
// the predecessor's, put behind what the replay told of its successor.
func (c *cursor) backwards(m message) bool {
	switch {
	case c.ask.why == forStart || c.ask.why == forReconnect:
		return m.seq <= c.liveLast && !c.held.has(m)
	case !c.replayable || m.seq >= c.liveFirst:
		return false
	}
	known, ok := c.history.get(m.seq)
	return m.seq > c.last || ok && known == m.hash // any other is judged by rule 1
}

// contact notes that the engine was heard.
func (c *cursor) contact(now int64) {
	c.quietSince, c.probeGap = now, probeAfter
	c.do(action{kind: doContact})
}

// holding reports whether live batches wait for a replay. A probe makes nobody wait.
func (c *cursor) holding() bool { return c.ask.why != idle && c.ask.why != forProbe }

// below judges a live batch at or below the cursor (rule 1).
func (c *cursor) below(now int64, m message) {
	known, ok := c.history.get(m.seq)
	switch {
	case ok && known == m.hash:
		c.counters.Duplicates++
		if c.liveFirst < 0 {
			c.liveFirst = 0
		}
		c.vouch(now, m.seq)
	case c.restartBlind:
		c.counters.Stale++
	case c.covered(m.seq) && ok:
		c.contradiction("stream and replay differ", m.seq)
	case c.covered(m.seq):
		c.counters.Stale++ // the live copy of a replayed batch, too old for its hash to be kept
	case ok:
		c.restartAt(now, contract.RestartPayload, m)
	case m.clears():
		c.restartAt(now, contract.RestartClear, m)
	case m.seq <= 1 && m.seq < c.last:
		c.restartAt(now, contract.RestartZero, m)
	case m.seq+farBelow <= c.last:
		c.restartAt(now, contract.RestartFarBelow, m)
	default:
		c.counters.Stale++
	}
}

// covered reports whether a replay on this connection brought seq and the stream has yet to repeat it.
func (c *cursor) covered(seq int64) bool {
	return seq > c.liveLast && seq >= c.coverFrom && seq <= c.coverTo
}

// above takes a live batch that does not follow the cursor: a gap, or the first of all without a replay.
func (c *cursor) above(now int64, m message) {
	c.contact(now)
	switch {
	case !c.replayable && !c.begun:
		c.setQuality(contract.QualityPartial)
		c.accept(m)
	case !c.replayable:
		c.doubted = false
		c.lose(m.seq)
		c.accept(m)
	case c.gapRecoveryOff:
		c.cancel() // of a probe
		c.lose(m.seq)
		c.accept(m)
	default:
		c.gap(m.seq)
		c.cancel() // of a probe
		if at, there := c.held.find(m.seq); !there {
			c.held.put(at, m)
		}
		c.recover(now, forGap)
	}
}

// gap counts the batches missing in front of seq as one gap.
func (c *cursor) gap(seq int64) {
	c.counters.Gaps++
	c.note("gap", "from", c.last+1, "to", seq-1)
}

// hold keeps a live batch until the replay has filled what is in front of it.
func (c *cursor) hold(now int64, m message) {
	at, there := c.held.find(m.seq)
	switch {
	case there && c.held.list[at].hash == m.hash:
		c.counters.Duplicates++
		return
	case there:
		c.contradiction("two payloads under one number", m.seq)
		return
	}
	c.contact(now)
	if !c.held.put(at, m) {
		c.probeOwed = true
	}
	if c.ask.why == forReconnect && !c.ask.open && !c.ask.failed {
		c.send(now) // the live batch that an empty answer was waiting for
	}
}

// accept applies the next batch.
func (c *cursor) accept(m message) {
	c.last, c.begun = m.seq, true
	c.history.add(m.seq, m.hash)
	wanted := c.last + 1
	if c.coverTo > c.liveLast {
		wanted = max(c.coverFrom, c.liveLast+1)
	}
	c.history.trim(wanted)
	c.counters.Batches++
	c.do(action{kind: doApply, message: m, rebuilt: !m.live})
}

// lose passes over the batches in front of seq, which cannot be had any more (rung 4). With none of them
// lost it is whose batches these are that cannot be told.
func (c *cursor) lose(seq int64) {
	if c.last < 0 {
		if seq > 0 {
			c.setQuality(contract.QualityPartial)
		}
		return
	}
	missed := seq - c.last - 1
	if missed > 0 && c.ask.why != forGap {
		c.gap(seq)
	}
	c.counters.Unrecovered += missed
	if missed <= farBelow {
		c.setQuality(contract.QualityDegraded)
		return
	}
	c.counters.Resyncs[contract.ResyncGap]++
	c.note("gap_cleared", "missed", missed)
	c.do(action{kind: doClear})
	c.setQuality(contract.QualityPartial)
}

// restart begins a new incarnation, of whose index the quality is known: its predecessor's memberships go
// at once.
func (c *cursor) restart(rule, quality string) {
	c.cancel()
	c.epoch++
	c.counters.Restarts[rule]++
	c.counters.Resyncs[contract.ResyncRestart]++
	c.note("restart", "rule", rule, "epoch", c.epoch, "cursor", c.last)
	c.do(action{kind: doClear, restart: true})
	c.last, c.begun, c.doubted = -1, false, false
	c.coverFrom, c.coverTo = -1, -1
	c.history = history{}
	c.turn.begin()
	c.hostTurn.begin()
	c.held.reset()
	c.setQuality(quality)
}

// restartAt begins a new incarnation with one of its batches, taken from the live stream, in hand.
// Everything behind it on this connection is the new publisher's.
func (c *cursor) restartAt(now int64, rule string, m message) {
	quality := contract.QualityExact
	if m.seq > 0 && !c.replayable {
		quality = contract.QualityPartial
	}
	c.restart(rule, quality)
	c.contact(now)
	c.liveFirst, c.liveLast = m.seq, m.seq
	switch {
	case m.seq > 0 && c.replayable:
		c.held.put(0, m)
		c.recover(now, forStart)
	default:
		c.accept(m)
		c.setStream(contract.StreamLive)
	}
}

// contradiction drops the subscription: what it brought and what the replay says cannot both be one
// publisher's. A fresh one is.
func (c *cursor) contradiction(why string, seq int64) {
	c.note("contradiction", "why", why, "seq", seq)
	c.resubscribe()
}

func (c *cursor) resubscribe() {
	c.down()
	c.do(action{kind: doResubscribe})
}

// tick lets time pass. busy says that requests of ours are in flight on the worker.
func (c *cursor) tick(now int64, busy bool) {
	switch {
	case c.ask.why != idle:
		c.ask.tick(c, now)
	case !c.probing() || now < c.quietSince+c.probeGap:
	case c.probeOwed || busy:
		c.probeOwed = false
		c.recover(now, forProbe)
	default:
		// Nobody is waiting for anything; look again a probe's time later.
		c.quietSince = now
	}
}

// probing reports whether the end of the stream may be looked at.
func (c *cursor) probing() bool {
	return c.replayable && c.connected && c.stream == contract.StreamLive && !c.gapRecoveryOff
}

// deadline is when tick has something to do, in monotonic ns; 0 for never.
func (c *cursor) deadline() int64 {
	switch {
	case c.ask.why != idle && c.ask.open:
		return c.ask.heardAt + replayIdle
	case c.ask.why != idle:
		return c.ask.retryAt
	case c.probing():
		return c.quietSince + c.probeGap
	}
	return 0
}

func (c *cursor) setStream(to string) {
	if c.stream != to {
		c.note("stream", "from", c.stream, "to", to)
		c.stream = to
	}
}

func (c *cursor) setQuality(to string) {
	c.turn.begin()
	c.hostTurn.begin()
	c.doubtedAt = c.counters.Batches
	if c.quality != to {
		c.note("quality", "from", c.quality, "to", to)
		c.quality = to
	}
}
