package recovery

import (
	"maps"

	"fleetdrill/gateway/events"
	"fleetdrill/gateway/index"
	"fleetdrill/internal/contract"
)

// core is cursor and applier of one rank together: everything that decides, without sockets and clocks.
type core struct {
	cursor *cursor
	apply  *applier
	// collected is when the engine collected the newest batch that the last settle applied from the live
	// stream, in unix seconds; 0 without one.
	collected float64
	// later are the actions of a step that are not changes of the index, reused.
	later []action
}

func newCore(s Source, r *index.Residency) core {
	return core{cursor: newCursor(s.Replay != ""), apply: newApplier(s, r)}
}

// settle carries out what the cursor decided on the index and returns the rest, in order, until the next
// call.
func (c *core) settle() []action {
	c.later, c.collected = c.later[:0], 0
	// Applying tells the cursor what happened, which may make it ask for more.
	for i := 0; i < len(c.cursor.out); i++ {
		if a := c.cursor.out[i]; !c.change(a) {
			c.later = append(c.later, a)
		}
	}
	c.cursor.out = c.cursor.out[:0]
	return c.later
}

// change carries out an action on the index; false for any other.
func (c *core) change(a action) bool {
	switch a.kind {
	case doApply:
		e := c.apply.take(a.message)
		c.cursor.applied(e)
		if !a.rebuilt && e.ts > 0 {
			c.collected = e.ts
		}
	case doClear:
		if a.restart {
			c.apply.restart()
		} else {
			c.apply.clear()
		}
	default:
		return false
	}
	return true
}

// state is the rank as the routing state shows it, but for its lag.
func (c *core) state(rank int) contract.RoutingRank {
	counters := c.cursor.counters
	counters.Orphans = c.apply.orphaned
	counters.Resyncs, counters.Restarts = maps.Clone(counters.Resyncs), maps.Clone(counters.Restarts)
	counters.Drops = c.apply.norm.Drops()
	blocks, digest := c.apply.residency.Sums(c.apply.holder, index.Device)
	hostBlocks, hostDigest := c.apply.residency.Sums(c.apply.holder, index.Host)
	return contract.RoutingRank{
		Rank: rank, Stream: c.cursor.stream, Quality: c.cursor.quality, Epoch: c.cursor.epoch, NextSeq: c.cursor.last + 1,
		Blocks: blocks, Digest: contract.U64(digest), HostBlocks: hostBlocks, HostDigest: contract.U64(hostDigest),
		Counters: counters,
	}
}

// Core follows one (worker, rank) in somebody else's time: a Subscription without sockets, goroutines and
// clock. Instants are ns of the caller's clock. It is not safe for concurrent use.
type Core struct {
	core core
	rank int
	// OnContact is called for every new live batch; may be nil.
	OnContact func(now int64)
	// OnAsk is called when the engine's replay is to be asked from a sequence number, as call id; the answer
	// comes by Replayed and ReplayEnd, not within the call.
	OnAsk func(now, id, from int64)
}

// NewCore makes the core of s, of which Events is not used; a non-empty Replay says that OnAsk is answered.
func NewCore(s Source, r *index.Residency) *Core { return &Core{core: newCore(s, r), rank: s.Rank} }

// Batch is one numbered batch of an engine. Hash is equal for equal content and else different.
type Batch struct {
	Seq  int64
	Hash uint64
	// Payload is the batch on the wire. Without one Events is the batch itself, which is changed when it is
	// applied.
	Payload []byte
	Events  *events.Batch
}

func (b Batch) message() message {
	return message{seq: b.Seq, hash: b.Hash, payload: b.Payload, batch: b.Events}
}

// Up says that the subscription stands.
func (c *Core) Up(now int64) {
	c.core.cursor.up(now)
	c.carryOut(now)
}

// Live takes a batch of the live stream.
func (c *Core) Live(now int64, b Batch) {
	c.core.cursor.live(now, b.message())
	c.carryOut(now)
}

// Replayed takes a batch out of replay call id.
func (c *Core) Replayed(now, id int64, b Batch) {
	c.core.cursor.replayed(now, id, b.message())
	c.carryOut(now)
}

// ReplayEnd takes the end marker of replay call id.
func (c *Core) ReplayEnd(now, id int64) {
	c.core.cursor.replayEnd(now, id)
	c.carryOut(now)
}

// Tick lets time pass; busy says that requests are in flight on the worker.
func (c *Core) Tick(now int64, busy bool) {
	c.core.cursor.tick(now, busy)
	c.carryOut(now)
}

// Deadline is when Tick has something to do next; 0 for never.
func (c *Core) Deadline() int64 { return c.core.cursor.deadline() }

// Next is the sequence number behind the last batch applied, 0 before the first.
func (c *Core) Next() int64 { return c.core.cursor.last + 1 }

// LiveStream says that the stream is live, so that its silence means something.
func (c *Core) LiveStream() bool { return c.core.cursor.stream == contract.StreamLive }

// State is a snapshot.
func (c *Core) State() contract.RoutingRank { return c.core.state(c.rank) }

// carryOut passes on what the cursor wants. A call that it cancels may still answer: the cursor knows it by
// its id and does not listen. Nothing here breaks, so it never wants another subscription.
func (c *Core) carryOut(now int64) {
	for _, a := range c.core.settle() {
		switch a.kind {
		case doContact:
			if c.OnContact != nil {
				c.OnContact(now)
			}
		case doAsk:
			c.OnAsk(now, a.id, a.from)
		}
	}
}
