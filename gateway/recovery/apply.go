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
	orphaned  int64 // stores with an unknown parent
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
	for _, op := range a.norm.Normalize(b) {
		switch op.Kind {
		case events.Stored:
			e.stored += len(op.Hashes)
			a.store(op)
		case events.Removed:
			e.removed += len(op.Hashes)
			e.unknown += a.remove(op.Hashes)
		case events.Cleared:
			e.cleared = true
			a.clear()
		}
	}
	e.count = a.blocks()
	return e
}

func (a *applier) blocks() int { return a.residency.Index().Count(a.holder) }

// store makes a store, or keeps it until its parent comes, and then makes those that waited for it.
func (a *applier) store(op events.Op) {
	res := a.residency.Store(a.holder, op.Parent, op.HasParent, op.Hashes, op.Contents)
	if res.UnknownParent {
		a.orphaned++
		a.orphans.add(op)
		return
	}
	for i := 0; i < len(op.Hashes) && a.orphans.count > 0; i++ {
		for _, waiting := range a.orphans.claim(op.Hashes[i]) {
			a.store(waiting.op)
			a.remove(waiting.removed)
		}
	}
}

// remove takes one copy of each hash and returns how many nobody knew. It changes hashes.
func (a *applier) remove(hashes []uint64) (unknown int) {
	removed, unknown := a.residency.Remove(a.holder, hashes)
	if a.orphans.count == 0 {
		return unknown
	}
	for _, h := range hashes[removed : removed+unknown] {
		if a.orphans.remove(h) {
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
