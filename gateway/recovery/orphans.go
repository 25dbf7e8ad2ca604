package recovery

import (
	"slices"

	"fleetdrill/gateway/events"
)

// Bounds on stores whose parent the index does not have; beyond them they are dropped.
const (
	maxOrphans      = 256     // per rank
	maxOrphanBlocks = 1 << 16 // over all of them: 1 MB of hashes
)

// orphan is a store that waits for its parent. It is never planted at the root: a prefix that is not one
// would be credited to requests that share nothing with it.
type orphan struct {
	op events.Op
	// removed are removals of its blocks since; they are made up for when it is planted.
	removed []uint64
}

// orphans are the waiting stores of one rank.
type orphans struct {
	byParent map[uint64][]*orphan
	byHash   map[uint64]*orphan
	count    int
	blocks   int
}

func newOrphans() *orphans {
	return &orphans{byParent: make(map[uint64][]*orphan), byHash: make(map[uint64]*orphan)}
}

// add keeps a copy of a store, if there is room.
func (o *orphans) add(op events.Op) {
	if o.count >= maxOrphans || o.blocks+len(op.Hashes) > maxOrphanBlocks {
		return
	}
	op.Hashes, op.Contents = slices.Clone(op.Hashes), slices.Clone(op.Contents)
	waiting := &orphan{op: op}
	o.byParent[op.Parent] = append(o.byParent[op.Parent], waiting)
	for _, h := range op.Hashes {
		o.byHash[h] = waiting
	}
	o.count++
	o.blocks += len(op.Hashes)
}

// remove notes the removal of a block that the index does not have, and reports whether an orphan had it.
func (o *orphans) remove(hash uint64) bool {
	waiting := o.byHash[hash]
	if waiting == nil {
		return false
	}
	delete(o.byHash, hash)
	waiting.removed = append(waiting.removed, hash)
	return true
}

// claim takes out the stores that waited for parent.
func (o *orphans) claim(parent uint64) []*orphan {
	list := o.byParent[parent]
	if list == nil {
		return nil
	}
	delete(o.byParent, parent)
	for _, waiting := range list {
		o.count--
		o.blocks -= len(waiting.op.Hashes)
		for _, h := range waiting.op.Hashes {
			if o.byHash[h] == waiting {
				delete(o.byHash, h)
			}
		}
	}
	return list
}
