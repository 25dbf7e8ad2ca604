package recovery

import (
	"slices"

	"fleetdrill/gateway/events"
	"fleetdrill/gateway/index"
)

// places keeps the places of blocks that a batch removes before it names them.
//
// An engine that moves a block from the device to the host says so in this order: removed from the device,
// then, behind all that the device did, stored on the host, by name alone. Taken literally the block's place
// is forgotten before the name comes. So a removal of a block that the rest of the batch stores on the host
// keeps the place, and the last of these stores gives it free.
type places struct {
	// due counts per hash the host stores in the rest of the batch, up to a clear. It is nil in a batch
	// without any.
	due map[uint64]int
	// kept are the hashes whose places are kept.
	kept map[uint64]bool
}

// scan looks for host stores among the operations that follow.
func (p *places) scan(ops []events.Op) {
	p.due, p.kept = nil, nil
	for _, op := range ops {
		switch {
		case op.Kind == events.Cleared:
			return
		case !op.Host || op.Kind == events.Removed:
			continue
		case p.due == nil:
			p.due, p.kept = make(map[uint64]int), make(map[uint64]bool)
		}
		for _, h := range op.Hashes {
			p.due[h]++
		}
	}
}

// keep keeps the places of what is about to be removed and comes back in this batch.
func (a *applier) keep(op events.Op) {
	if a.places.due == nil {
		return
	}
	for _, h := range op.Hashes {
		if a.places.due[h] > 0 && !a.places.kept[h] && a.attach(h, index.Kept) {
			a.places.kept[h] = true
		}
	}
}

// release gives free the places that a host store was the last to wait for. A place that has no copy now is
// forgotten.
func (a *applier) release(op events.Op) {
	if !op.Host || a.places.due == nil {
		return
	}
	for _, h := range op.Hashes {
		if a.places.due[h]--; a.places.due[h] == 0 && a.places.kept[h] {
			delete(a.places.kept, h)
			a.remove(index.Kept, []uint64{h})
		}
	}
}

// attach counts a copy of a block whose place is known, or will be when its parent comes.
func (a *applier) attach(hash uint64, tier index.Tier) bool {
	one := [1]uint64{hash}
	return len(a.residency.Attach(a.holder, tier, one[:])) == 0 || a.orphans.attach(hash, tier)
}

// name counts a host copy of a block by name and returns 1 if nobody knew it, else 0: such a block has no
// place, and none is guessed.
func (a *applier) name(hash uint64) (unknown int) {
	if a.attach(hash, index.Host) {
		return 0
	}
	a.orphaned++
	return 1
}

// lost makes a store whose parent is gone. If it is the host's and the gateway knows where one of its blocks
// is, then that block and those behind it have places; the others wait for the parent.
func (a *applier) lost(op events.Op) {
	at := -1
	if op.Host {
		at = slices.IndexFunc(op.Hashes, func(h uint64) bool { return a.residency.Index().Holds(a.holder, h) })
	}
	if at != 0 {
		front := op
		if at > 0 {
			front.Hashes, front.Contents = op.Hashes[:at], op.Contents[:at]
		}
		a.orphaned++
		a.orphans.add(front)
	}
	if at < 0 {
		return
	}
	a.name(op.Hashes[at])
	if rest := at + 1; rest < len(op.Hashes) {
		op.HasParent, op.Parent = true, op.Hashes[at]
		op.Hashes, op.Contents = op.Hashes[rest:], op.Contents[rest:]
		a.store(op)
	}
}
