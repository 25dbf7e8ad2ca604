package engine

import "fleetdrill/mockworker/blockhash"

// table maps a hash to its physical copies: open addressing with linear probing over block ids, 16 to 32
// bytes a block where a Go map keyed by digests would need 80.
type table struct {
	blocks []block
	slots  []slot
	mask   uint64
}

// slot is the first copy of a hash, nullBlock for an empty slot, and the hash's low bits: nearly all that
// probing asks of a block it finds on the way, without going there.
type slot struct {
	id  int32
	tag uint32
}

// newTable has room for every block of the pool at half load or less.
func newTable(blocks []block, n int) table {
	size := 4
	for size < 2*n {
		size *= 2
	}
	return table{blocks: blocks, slots: make([]slot, size), mask: uint64(size - 1)}
}

// find is the slot where hash is, or the empty one where it would go.
func (t *table) find(hash *blockhash.Digest) uint64 {
	key := hash.EventInt()
	at, tag := key&t.mask, uint32(key)
	for s := t.slots[at]; s.id != nullBlock && (s.tag != tag || t.blocks[s.id].hash != *hash); s = t.slots[at] {
		at = (at + 1) & t.mask
	}
	return at
}

// first is the copy stored first, nullBlock when the hash is not cached.
func (t *table) first(hash *blockhash.Digest) int32 { return t.slots[t.find(hash)].id }

// add links a hashed block in as the last copy of its hash.
func (t *table) add(id int32) {
	b := &t.blocks[id]
	at := t.find(&b.hash)
	head := t.slots[at].id
	b.copyNext = nullBlock
	if head == nullBlock {
		t.slots[at], b.copyPrev = slot{id, uint32(b.hash.EventInt())}, id
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
	head := t.slots[at].id
	switch {
	case head != id: // in the middle or the last
		t.blocks[b.copyPrev].copyNext = b.copyNext
		if b.copyNext != nullBlock {
			t.blocks[b.copyNext].copyPrev = b.copyPrev
		} else {
			t.blocks[head].copyPrev = b.copyPrev
		}
	case b.copyNext != nullBlock: // the next one becomes the first and must know the last
		t.slots[at].id = b.copyNext
		t.blocks[b.copyNext].copyPrev = b.copyPrev
	default:
		t.vacate(at)
	}
	b.copyPrev, b.copyNext = nullBlock, nullBlock
}

// vacate empties a slot and moves later entries of the run back over it, so that no probe stops short.
func (t *table) vacate(hole uint64) {
	for at := (hole + 1) & t.mask; t.slots[at].id != nullBlock; at = (at + 1) & t.mask {
		home := uint64(t.slots[at].tag) & t.mask // a pool has fewer than 2^31 blocks
		if (at-home)&t.mask >= (at-hole)&t.mask {
			t.slots[hole] = t.slots[at]
			hole = at
		}
	}
	t.slots[hole] = slot{}
}

// copies counts the physical copies from the first one, and says whether somebody holds one.
func (t *table) copies(first int32) (n int, inUse bool) {
	for id := first; id != nullBlock; id = t.blocks[id].copyNext {
		n++
		inUse = inUse || t.blocks[id].refs > 0
	}
	return n, inUse
}
