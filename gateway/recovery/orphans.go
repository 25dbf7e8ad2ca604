package recovery

import (
	"slices"

	"fleetdrill/gateway/events"
	"fleetdrill/gateway/index"
)

// Bounds on stores whose parent the index does not have; beyond them they are dropped.
const (
	maxOrphans      = 256     // per rank
	maxOrphanBlocks = 1 << 16 // over all of them, changes since included: 1 to 2 MB
)

// orphan is a store that waits for its parent. It is never planted at the root: a prefix that is not one
// would be credited to requests that share nothing with it.
type orphan struct {
	op events.Op
	// later are changes of its blocks' copies since; they are made up for when it is planted.
	later []change
}

// change is one copy less, or one more.
type change struct {
	hash    uint64
	tier    index.Tier
	removed bool
}

// waiting is a block of an orphan, with its copies per tier.
type waiting struct {
	in     *orphan
	copies [index.Kept + 1]uint8
}

// orphans are the waiting stores of one rank.
type orphans struct {
	byParent map[uint64][]*orphan
	byHash   map[uint64]waiting
	count    int
	blocks   int
}

func newOrphans() *orphans {
	return &orphans{byParent: make(map[uint64][]*orphan), byHash: make(map[uint64]waiting)}
}

// add keeps a copy of a store, if there is room. Blocks that wait already get one more copy, so that a block waits
// in one place and its removals find it.
func (o *orphans) add(op events.Op) {
	for from := 0; from < len(op.Hashes); {
		if _, waits := o.byHash[op.Hashes[from]]; waits {
			o.attach(op.Hashes[from], tierOf(op))
			from++
			continue
		}
		to := from + 1
		for ; to < len(op.Hashes); to++ {
			if _, waits := o.byHash[op.Hashes[to]]; waits {
				break
			}
		}
		o.put(op, from, to)
		from = to
	}
}

// put keeps blocks from..to of a store.
func (o *orphans) put(op events.Op, from, to int) {
	if o.count >= maxOrphans || o.blocks+to-from > maxOrphanBlocks {
		return
	}
	if from > 0 {
		op.Parent = op.Hashes[from-1]
	}
	op.Hashes, op.Contents = slices.Clone(op.Hashes[from:to]), slices.Clone(op.Contents[from:to])
	one := &orphan{op: op}
	o.byParent[op.Parent] = append(o.byParent[op.Parent], one)
	for _, h := range op.Hashes {
		w := waiting{in: one}
		w.copies[tierOf(op)] = 1
		o.byHash[h] = w
	}
	o.count++
	o.blocks += len(op.Hashes)
}

// remove notes the removal of a block that the index does not have, and reports whether an orphan had it.
func (o *orphans) remove(hash uint64, tier index.Tier) bool {
	w, ok := o.byHash[hash]
	if !ok || w.copies[tier] == 0 || !o.note(w, change{hash, tier, true}) {
		return false
	}
	if w.copies[tier]--; w.copies == (waiting{}).copies {
		delete(o.byHash, hash)
	} else {
		o.byHash[hash] = w
	}
	return true
}

// attach notes a copy of a block by name, and reports whether an orphan has the block.
func (o *orphans) attach(hash uint64, tier index.Tier) bool {
	w, ok := o.byHash[hash]
	if !ok || w.copies[tier] < index.MaxCopies && !o.note(w, change{hash, tier, false}) {
		return false
	}
	w.copies[tier] = min(w.copies[tier]+1, index.MaxCopies)
	o.byHash[hash] = w
	return true
}

// note keeps a change, if there is room.
func (o *orphans) note(w waiting, c change) bool {
	if o.blocks >= maxOrphanBlocks {
		return false
	}
	o.blocks++
	w.in.later = append(w.in.later, c)
	return true
}

// claim takes out the stores that waited for parent.
func (o *orphans) claim(parent uint64) []*orphan {
	list := o.byParent[parent]
	if list == nil {
		return nil
	}
	delete(o.byParent, parent)
	for _, one := range list {
		o.count--
		o.blocks -= len(one.op.Hashes) + len(one.later)
		for _, h := range one.op.Hashes {
			if o.byHash[h].in == one {
				delete(o.byHash, h)
			}
		}
	}
	return list
}
