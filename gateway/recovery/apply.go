package recovery

import (
	"fleetdrill/gateway/events"
	"fleetdrill/gateway/index"
	"fleetdrill/internal/contract"
)

// applier turns the payloads of one rank, in the cursor's order, into changes of its holder.
type applier struct {
	residency *index.Residency
	holder    index.Holder
	blockSize int // tokens, 0 to learn it
	norm      *events.Normalizer
	orphans   *orphans
	orphaned  int64 // stores with an unknown parent, and blocks of unknown place
	places    places
	batch     events.Batch
}

func newApplier(s Source, r *index.Residency) *applier {
	return &applier{
		residency: r, holder: s.Holder, blockSize: s.BlockSize,
		norm: events.NewNormalizer(s.BlockSize), orphans: newOrphans(),
	}
}

// take applies one message.
func (a *applier) take(m message) effect {
	if m.batch != nil {
		return a.run(m.batch)
	}
	return a.apply(m.payload)
}

// apply applies one payload. One that is not a batch is an empty batch.
func (a *applier) apply(payload []byte) effect {
	if err := a.batch.Decode(payload); err != nil {
		a.norm.Drop(contract.DropMalformed)
	}
	return a.run(&a.batch)
}

// run applies a decoded batch, which it may change.
func (a *applier) run(b *events.Batch) effect {
	e := effect{ts: b.TS}
	ops := a.norm.Normalize(b)
	a.places.scan(ops)
	for i, op := range ops {
		n := e.of(tierOf(op))
		switch op.Kind {
		case events.Stored:
			n.stored += len(op.Hashes)
			a.store(op)
			a.release(op)
		case events.Attached:
			n.stored += len(op.Hashes)
			for _, h := range op.Hashes {
				n.unknown += a.name(h)
			}
			a.release(op)
		case events.Removed:
			a.keep(op)
			n.removed += len(op.Hashes)
			n.unknown += a.remove(tierOf(op), op.Hashes)
		case events.Cleared:
			e.cleared = true
			a.clear()
			a.places.scan(ops[i+1:])
		}
	}
	e.count, _ = a.residency.Sums(a.holder, index.Device)
	e.host.count, _ = a.residency.Sums(a.holder, index.Host)
	return e
}

func tierOf(op events.Op) index.Tier {
	if op.Host {
		return index.Host
	}
	return index.Device
}

// store makes a store, or keeps it until its parent comes, and then makes those that waited for it.
func (a *applier) store(op events.Op) {
	res := a.residency.StoreTier(a.holder, tierOf(op), op.Parent, op.HasParent, op.Hashes, op.Contents)
	if res.UnknownParent {
		a.lost(op)
		return
	}
	for i := 0; i < len(op.Hashes) && a.orphans.count > 0; i++ {
		for _, waiting := range a.orphans.claim(op.Hashes[i]) {
			a.store(waiting.op)
			for _, c := range waiting.later {
				a.make(c)
			}
		}
	}
}

// make makes up for what happened to a block while it waited.
func (a *applier) make(c change) {
	if c.removed {
		a.remove(c.tier, []uint64{c.hash})
	} else {
		a.attach(c.hash, c.tier)
	}
}

// remove takes one copy of each hash and returns how many nobody knew. It changes hashes.
func (a *applier) remove(tier index.Tier, hashes []uint64) (unknown int) {
	removed, unknown := a.residency.RemoveTier(a.holder, tier, hashes)
	if a.orphans.count == 0 {
		return unknown
	}
	for _, h := range hashes[removed : removed+unknown] {
		if a.orphans.remove(h, tier) {
			unknown--
		}
	}
	return unknown
}

// clear ends every membership, and every hope of one.
func (a *applier) clear() {
	a.residency.Clear(a.holder)
	a.orphans = newOrphans()
}

// restart makes ready for another incarnation of the publisher.
func (a *applier) restart() {
	a.clear()
	a.norm.Restart(a.blockSize)
}
