package recovery

import (
	"fleetdrill/gateway/index"
	"fleetdrill/internal/contract"
)

// effect is what applying one batch did: on the device, and in host memory.
type effect struct {
	tally
	host    tally
	cleared bool
	ts      float64 // unix seconds at which the engine collected it, 0 when unreadable
}

// tally is what a batch did in one tier, in blocks.
type tally struct {
	stored, removed int // named by the batch, known or not
	unknown         int // removals of blocks that the index did not have there, and names of unknown place
	count           int // memberships afterwards
}

func (e *effect) of(t index.Tier) *tally {
	if t == index.Host {
		return &e.host
	}
	return &e.tally
}

// turnover estimates when a pool has been used up once since an index became partial, so that what it lacks is
// gone from the engine too. It says nothing about a degraded index, whose lost removals leave blocks behind that no
// engine will ever remove.
//
// The pool's size is not on the wire. The most memberships ever seen stand in for it, which is too small
// at first. Two things keep that from ending a doubt early: only removals count, because before the first
// the pool is not full and each block that was there has to go, and the count starts anew with each unknown
// removal, because that shows blocks which the index never heard of to be still there. Each tier is a pool.
//
// It stays an estimate: a block that is in use all the time outlives many turnovers.
type turnover struct {
	heard   bool // of a removal
	removed int
	most    int // memberships, the highest count ever seen
}

// begin starts over.
func (t *turnover) begin() { t.heard, t.removed = false, 0 }

// done notes a batch and reports whether the pool has turned over.
func (t *turnover) done(e tally) bool {
	if e.unknown > 0 {
		t.heard, t.removed = true, 0
		return false
	}
	t.heard = t.heard || e.removed > 0
	t.removed += e.removed
	return t.most > 0 && t.removed >= t.most
}

// applied tells the cursor what applying the next of the batches that it accepted did. One that was accepted
// before something was lost says nothing about it.
func (c *cursor) applied(e effect) {
	c.effects++
	c.turn.most = max(c.turn.most, e.count)
	c.hostTurn.most = max(c.hostTurn.most, e.host.count)
	if c.effects <= c.doubtedAt {
		return
	}
	switch c.quality {
	case contract.QualityDegraded:
		if e.cleared {
			c.setQuality(contract.QualityExact)
		}
	case contract.QualityPartial:
		device, host := c.turn.done(e.tally), c.hostTurn.done(e.host)
		// Most engines have no host tier; one that was never heard of cannot be waited for.
		host = host || c.hostTurn.most == 0 && !c.hostTurn.heard
		if e.cleared || device && host {
			c.setQuality(contract.QualityExact)
		}
	}
}
