package engine

import "fleetdrill/mockworker/blockhash"

// table maps a hash to its physical copies: open addressing with linear probing over block ids, 8 to 16
// bytes a block where a Go map keyed by digests would need 80.
type table struct {
	blocks []block
	slots  []int32 // first copy of a hash, nullBlock for an empty slot
	mask   uint64
}

// newTable has room for every block of the pool at half load or less.
func newTable(blocks []block, n int) table {
	size := 4
	for size < 2*n {
		size *= 2
	}
	return table{blocks: blocks, slots: make([]int32, size), mask: uint64(size - 1)}
}

// find is the slot where hash is, or the empty one where it would go.
func (t *table) find(hash *blockhash.Digest) uint64 {
	at := hash.EventInt() & t.mask
	for t.slots[at] != nullBlock && t.blocks[t.slots[at]].hash != *hash {
		at = (at + 1) & t.mask
	}
	return at
}

// first is the copy stored first, nullBlock when the hash is not cached.
func (t *table) first(hash *blockhash.Digest) int32 { return t.slots[t.find(hash)] }

// add links a hashed block in as the last copy of its hash.
func (t *table) add(id int32) {
	b := &t.blocks[id]
	at := t.find(&b.hash)
	head := t.slots[at]
	b.copyNext = nullBlock
	if head == nullBlock {
		t.slots[at], b.copyPrev = id, id
		return
	}
	last := t.blocks[head].copyPrev
	b.copyPrev = last
	t.blocks[last].copyNext = id
	t.blocks[head].copyPrev = id
}

// remove unlinks one copy; with the last one the hash is gone.
func (t *table) remove(id int32) {
	b := &t.blocks[id]
	at := t.find(&b.hash)
	head := t.slots[at]
	switch {
	case head != id: // in the middle or the last
		t.blocks[b.copyPrev].copyNext = b.copyNext
		if b.copyNext != nullBlock {
			t.blocks[b.copyNext].copyPrev = b.copyPrev
		} else {
			t.blocks[head].copyPrev = b.copyPrev
		}
	case b.copyNext != nullBlock: // the next one becomes the first and must know the last
		t.slots[at] = b.copyNext
		t.blocks[b.copyNext].copyPrev = b.copyPrev
	default:
		t.vacate(at)
	}
	b.copyPrev, b.copyNext = nullBlock, nullBlock
}

// vacate empties a slot and moves later entries of the run back over it, so that no probe stops short.
func (t *table) vacate(hole uint64) {
	for at := (hole + 1) & t.mask; t.slots[at] != nullBlock; at = (at + 1) & t.mask {
		home := t.blocks[t.slots[at]].hash.EventInt() & t.mask
		if (at-home)&t.mask >= (at-hole)&t.mask {
			t.slots[hole] = t.slots[at]
			hole = at
		}
	}
	t.slots[hole] = nullBlock
}

// copies counts the physical copies from the first one, and says whether somebody holds one.
func (t *table) copies(first int32) (n int, inUse bool) {
	for id := first; id != nullBlock; id = t.blocks[id].copyNext {
		n++
		inUse = inUse || t.blocks[id].refs > 0
	}
	return n, inUse
}
