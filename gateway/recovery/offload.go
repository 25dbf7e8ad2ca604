package recovery

import (
	"fleetdrill/gateway/events"
	"fleetdrill/gateway/index"
)

// early makes the offloads of a batch before its evictions.
//
// An engine that moves a block from the device to the host says so in this order: removed from the device,
// then, behind all that the device did, stored on the host, by name alone. Taken literally the block's place
// is forgotten before the name comes. Copies in different tiers are counted apart, so counting the host's
// before the device's goes changes nothing but that.
type early struct {
	// due counts per hash the host stores of the rest of the batch, up to a clear; made those that were
	// counted already. Both are nil in a batch without any.
	due, made map[uint64]int
}

// scan looks for host stores among the operations that follow.
func (e *early) scan(ops []events.Op) {
	e.due, e.made = nil, nil
	for _, op := range ops {
		switch {
		case op.Kind == events.Cleared:
			return
		case !op.Host || op.Kind == events.Removed:
			continue
		case e.due == nil:
			e.due, e.made = make(map[uint64]int), make(map[uint64]int)
		}
		for _, h := range op.Hashes {
			e.due[h]++
		}
	}
}

// take reports that the host store of a hash was counted before its turn.
func (e *early) take(hash uint64) bool {
	if e.due == nil {
		return false
	}
	e.due[hash]--
	if e.made[hash] == 0 {
		return false
	}
	e.made[hash]--
	return true
}

// rest are those of hashes whose turn is now. It overwrites hashes.
func (e *early) rest(hashes []uint64) []uint64 {
	out := hashes[:0]
	for _, h := range hashes {
		if !e.take(h) {
			out = append(out, h)
		}
	}
	return out
}

// ahead makes the host stores of what a removal takes off the device.
func (a *applier) ahead(op events.Op) {
	if op.Host || a.early.due == nil {
		return
	}
	for _, h := range op.Hashes {
		if a.early.due[h] > a.early.made[h] && a.hold(h) {
			a.early.made[h]++
		}
	}
}

// hold counts a host copy of a block whose place is known, or will be when its parent comes.
func (a *applier) hold(hash uint64) bool {
	one := [1]uint64{hash}
	return len(a.residency.Attach(a.holder, index.Host, one[:])) == 0 || a.orphans.attach(hash)
}

// attach counts host copies of blocks by name and returns how many nobody knew: those have no place, and
// none is guessed. It changes hashes.
func (a *applier) attach(hashes []uint64) (unknown int) {
	for _, h := range a.residency.Attach(a.holder, index.Host, hashes) {
		if !a.orphans.attach(h) {
			a.orphaned++
			unknown++
		}
	}
	return unknown
}

// stored makes a store, without those of its blocks that were counted early.
func (a *applier) stored(op events.Op) {
	if !op.Host || a.early.due == nil {
		a.store(op)
		return
	}
	from := 0
	for i, h := range op.Hashes {
		if a.early.take(h) {
			a.part(op, from, i)
			from = i + 1
		}
	}
	a.part(op, from, len(op.Hashes))
}

// part makes a store of some of its blocks; the block in front of them is their parent.
func (a *applier) part(op events.Op, from, to int) {
	if from == to {
		return
	}
	if from > 0 {
		op.HasParent, op.Parent = true, op.Hashes[from-1]
	}
	op.Hashes, op.Contents = op.Hashes[from:to:to], op.Contents[from:to:to]
	a.store(op)
}

// placed makes a host store whose parent is gone, if the device still has its blocks: then their places are
// known.
func (a *applier) placed(op events.Op) bool {
	if !op.Host {
		return false
	}
	for _, h := range op.Hashes {
		if !a.residency.Index().Holds(a.holder, h) {
			return false
		}
	}
	return a.attach(append([]uint64(nil), op.Hashes...)) == 0
}
