package engine

import (
	"math/bits"

	"fleetdrill/mockworker/blockhash"
)

// table maps a hash and a group to the physical copies: open addressing with linear probing over block
// ids, 12 bytes a block where a Go map keyed by digests would need 80.
type table struct {
	blocks []block
	slots  []slot
}

// slot is the first copy of a hash, nullBlock for an empty slot, and 32 mixed bits of hash and group. They
// say where probing begins, and nearly all that it asks of a block on the way, without going there.
type slot struct {
	id  int32
	tag uint32
}

// newTable has room for every block of the pool at two thirds load.
func newTable(blocks []block, n int) table {
	return table{blocks: blocks, slots: make([]slot, n+n/2+2)}
}

// tagOf mixes, because a hash may be a small integer and the slots are taken from the upper bits.
func tagOf(key uint64, group int32) uint32 {
	const golden = 0x9e3779b97f4a7c15
	return uint32((key + uint64(group)) * golden >> 32)
}

// home is the slot where a tag belongs.
func (t *table) home(tag uint32) int {
	hi, _ := bits.Mul64(uint64(tag)<<32, uint64(len(t.slots)))
	return int(hi)
}

func (t *table) after(at int) int {
	if at++; at < len(t.slots) {
		return at
	}
	return 0
}

// find is the slot where a hash of a group is, or the empty one where it would go.
func (t *table) find(hash *blockhash.Packed, tag uint32, group int32) int {
	at := t.home(tag)
	for s := t.slots[at]; s.id != nullBlock && !t.is(s, hash, tag, group); s = t.slots[at] {
		at = t.after(at)
	}
	return at
}

func (t *table) is(s slot, hash *blockhash.Packed, tag uint32, group int32) bool {
	if s.tag != tag {
		return false
	}
	b := &t.blocks[s.id]
	return b.state.group() == group && b.hash == *hash
}

// first is the copy stored first, nullBlock when the hash is not cached. key is its event integer.
func (t *table) first(hash *blockhash.Packed, key uint64, group int32) int32 {
	return t.slots[t.find(hash, tagOf(key, group), group)].id
}

// add links a hashed block in as the last copy of its hash, and says whether it is the only one.
func (t *table) add(id int32, key uint64) (only bool) {
	b := &t.blocks[id]
	tag := tagOf(key, b.state.group())
	at := t.find(&b.hash, tag, b.state.group())
	head := t.slots[at].id
	b.copyNext = nullBlock
	if head == nullBlock {
		t.slots[at], b.copyPrev = slot{id, tag}, id
		return true
	}
	last := t.blocks[head].copyPrev
	b.copyPrev = last
	t.blocks[last].copyNext = id
	t.blocks[head].copyPrev = id
	return false
}

// remove unlinks one copy, and says whether it was the only one: then the hash is gone.
func (t *table) remove(id int32, key uint64) (only bool) {
	b := &t.blocks[id]
	at := t.find(&b.hash, tagOf(key, b.state.group()), b.state.group())
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
		only = true
	}
	b.copyPrev, b.copyNext = nullBlock, nullBlock
	return only
}

// vacate empties a slot and moves later entries of the run back over it, so that no probe stops short.
func (t *table) vacate(hole int) {
	for at := t.after(hole); t.slots[at].id != nullBlock; at = t.after(at) {
		if t.between(t.home(t.slots[at].tag), hole, at) {
			t.slots[hole] = t.slots[at]
			hole = at
		}
	}
	t.slots[hole] = slot{}
}

// between says that going round from home to at passes hole, or begins there.
func (t *table) between(home, hole, at int) bool {
	if home <= at {
		return home <= hole && hole < at
	}
	return home <= hole || hole < at
}

// copies counts the physical copies from the first one, and says whether somebody holds one.
func (t *table) copies(first int32) (n int, inUse bool) {
	for id := first; id != nullBlock; id = t.blocks[id].copyNext {
		n++
		inUse = inUse || t.blocks[id].state.refs() > 0
	}
	return n, inUse
}
