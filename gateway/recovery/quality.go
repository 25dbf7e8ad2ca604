package recovery

import "fleetdrill/internal/contract"

// effect is what applying one batch did, in blocks.
type effect struct {
	stored, removed int // named by the batch, known or not
	unknown         int // removals of blocks that the index did not have
	cleared         bool
	ts              float64 // unix seconds at which the engine collected it, 0 when unreadable
	count           int     // memberships afterwards
}

// turnover estimates when a pool has been used up once since an index became incomplete, so that what it
// lacks is gone from the engine too.
//
// The pool's size is not on the wire. The most memberships ever seen stand in for it, which is too small
// at first. Two things keep that from ending a doubt early: the count starts with the first removal,
// because before it the pool is not full, and starts anew with each unknown removal, because that shows
// blocks which the index never heard of to be still there.
type turnover struct {
	counting bool
	turned   int
}

// begin starts over.
func (t *turnover) begin() { *t = turnover{} }

// done notes a batch and reports whether a pool of `most` blocks has turned over.
func (t *turnover) done(e effect, most int) bool {
	if e.unknown > 0 {
		*t = turnover{counting: true}
		return false
	}
	t.counting = t.counting || e.removed > 0
	if t.counting {
		t.turned += e.stored + e.removed
	}
	return t.counting && most > 0 && t.turned >= most
}

// applied tells the cursor what applying its last batch did.
func (c *cursor) applied(e effect) {
	c.most = max(c.most, e.count)
	if c.quality != contract.QualityPartial && c.quality != contract.QualityDegraded {
		return
	}
	if e.cleared || c.turn.done(e, c.most) {
		c.setQuality(contract.QualityExact)
	}
}
