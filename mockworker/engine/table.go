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
	links  []links // of each block, nil until a hash has a second copy
}

// links join the physical copies of one hash in the order they were stored. The first one, which the table
// points at, has prev pointing at the last, so that appending is one step. A copy that is alone has none:
// most blocks never get another, and the memory of their links is never touched.
type links struct{ prev, next int32 }

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
	if head == nullBlock {
		t.slots[at] = slot{id, tag}
		return true
	}
	if t.links == nil {
		t.links = make([]links, len(t.blocks))
	}
	last := head
	if prev := t.links[head].prev; prev != nullBlock {
		last = prev
	}
	t.links[last].next = id
	t.links[id] = links{prev: last}
	t.links[head].prev = id
	return false
}

// remove unlinks one copy, and says whether it was the only one: then the hash is gone.
func (t *table) remove(id int32, key uint64) (only bool) {
	b := &t.blocks[id]
	at := t.find(&b.hash, tagOf(key, b.state.group()), b.state.group())
	head := t.slots[at].id
	if head == id && t.nextCopy(id) == nullBlock {
		t.vacate(at)
		return true
	}
	l := t.links[id]
	switch {
	case head == id: // the next one becomes the first and must know the last, unless it is that
		t.slots[at].id, head = l.next, l.next
		t.links[l.next].prev = l.prev
	case l.next != nullBlock: // in the middle
		t.links[l.prev].next, t.links[l.next].prev = l.next, l.prev
	default:
		t.links[l.prev].next, t.links[head].prev = nullBlock, l.prev
	}
	if t.links[head].next == nullBlock { // alone
		t.links[head] = links{}
	}
	t.links[id] = links{}
	return false
}

// nextCopy is the copy stored after this one, nullBlock behind the last.
func (t *table) nextCopy(id int32) int32 {
	if t.links == nil {
		return nullBlock
	}
	return t.links[id].next
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
	for id := first; id != nullBlock; id = t.nextCopy(id) {
		n++
		inUse = inUse || t.blocks[id].state.refs() > 0
	}
	return n, inUse
}
