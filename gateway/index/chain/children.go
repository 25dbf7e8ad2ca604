package chain

import (
	"math/bits"
	"sync/atomic"
)

// golden spreads keys that differ little over the whole word: 2^64 divided by the golden ratio.
const golden = 0x9e3779b97f4a7c15

// A table of children has 2^log slots of two words: the content of the child's first block, then (offset
// 32 bits, run 32 bits), 0 for a vacant slot. Probing is linear, at most 3/4 are in use, and a removal
// shifts the slots behind it back, so that no number of children that came and went lengthens a probe.

// slotOf is where the probing for a child begins.
func slotOf(offset uint32, content uint64, log uint32) uint32 {
	mixed := (content ^ bits.RotateLeft64(uint64(offset+1)*golden, 23)) * golden
	return uint32(mixed >> (64 - log))
}

// child is the run attached to r behind offset blocks that begins with content, 0 if there is none. A
// reader must check the version of r before it believes the answer.
func (x *Index) child(r *run, offset uint32, content uint64) uint32 {
	ref, log, _ := r.children.load()
	if ref == 0 {
		return 0
	}
	table := x.arena.view(ref, 2<<log)
	mask := uint32(1)<<log - 1
	at := slotOf(offset, content, log)
	// The bound ends the probe of a table that was freed and filled with something else meanwhile.
	for range mask + 1 {
		value := atomic.LoadUint64(&table[2*at+1])
		if value == 0 {
			return 0
		}
		if uint32(value>>32) == offset && atomic.LoadUint64(&table[2*at]) == content {
			return uint32(value)
		}
		at = (at + 1) & mask
	}
	return 0
}

// attach enters a child. Readers see it or they do not, so no version step is needed unless the table grows.
func (x *Index) attach(parent, offset uint32, content uint64, id uint32) {
	r := x.runs.at(parent)
	ref, log, _ := r.children.load()
	r.kids++
	x.maxKids = max(x.maxKids, r.kids)
	if ref == 0 || r.kids*4 > 3<<log {
		log = x.rebuild(parent, r.kids)
		ref, _, _ = r.children.load()
	}
	enter(x.arena.view(ref, 2<<log), log, content, uint64(offset)<<32|uint64(id))
}

// enter writes the slot of a child: the content first, because the other word publishes it.
func enter(table []uint64, log uint32, content, value uint64) {
	mask := uint32(1)<<log - 1
	at := slotOf(uint32(value>>32), content, log)
	for atomic.LoadUint64(&table[2*at+1]) != 0 {
		at = (at + 1) & mask
	}
	atomic.StoreUint64(&table[2*at], content)
	atomic.StoreUint64(&table[2*at+1], value)
}

// rebuild makes a table with room for kids and moves the children there. It is filled before readers are
// kept waiting.
func (x *Index) rebuild(parent, kids uint32) (log uint32) {
	r := x.runs.at(parent)
	for log = 1; kids*4 > 3<<log; log++ {
	}
	ref, _ := x.arena.alloc(2 << log)
	table := x.arena.view(ref, 2<<log)
	zeroWords(table)
	old, oldLog, _ := r.children.load()
	if old != 0 {
		from := x.arena.view(old, 2<<oldLog)
		for i := 0; i < len(from); i += 2 {
			if value := atomic.LoadUint64(&from[i+1]); value != 0 {
				enter(table, log, atomic.LoadUint64(&from[i]), value)
			}
		}
		x.open(parent)
		x.arena.release(old, 2<<oldLog)
	}
	r.children.store(ref, log, 0)
	return log
}

// detach removes a child. The table goes with its last one and shrinks when seven of eight slots are vacant.
func (x *Index) detach(parent, offset uint32, content uint64, id uint32) {
	x.open(parent)
	r := x.runs.at(parent)
	ref, log, _ := r.children.load()
	if r.kids--; r.kids == 0 {
		r.children.store(0, 0, 0)
		x.arena.release(ref, 2<<log)
		return
	}
	vacate(x.arena.view(ref, 2<<log), log, content, uint64(offset)<<32|uint64(id))
	if log > 4 && r.kids*8 < 1<<log && x.arena.room(int64(r.kids)*8) {
		x.rebuild(parent, r.kids*2)
	}
}

// vacate empties the slot of a child and shifts those behind it that would no longer be found.
func vacate(table []uint64, log uint32, content, value uint64) {
	mask := uint32(1)<<log - 1
	hole := slotOf(uint32(value>>32), content, log)
	for atomic.LoadUint64(&table[2*hole+1]) != value {
		hole = (hole + 1) & mask
	}
	for at := (hole + 1) & mask; ; at = (at + 1) & mask {
		v := atomic.LoadUint64(&table[2*at+1])
		if v == 0 {
			break
		}
		c := atomic.LoadUint64(&table[2*at])
		// An entry may move back to the hole unless its probing begins behind the hole.
		if home := slotOf(uint32(v>>32), c, log); (at-home)&mask < (at-hole)&mask {
			continue
		}
		atomic.StoreUint64(&table[2*hole], c)
		atomic.StoreUint64(&table[2*hole+1], v)
		hole = at
	}
	atomic.StoreUint64(&table[2*hole+1], 0)
}

// lastChild is the highest offset that a child of r is attached at, but at most limit: the search ends there.
func (x *Index) lastChild(r *run, limit uint32) (offset uint32) {
	ref, log, _ := r.children.load()
	if ref == 0 {
		return 0
	}
	table := x.arena.view(ref, 2<<log)
	for i := 1; i < len(table) && offset < limit; i += 2 {
		offset = max(offset, uint32(atomic.LoadUint64(&table[i])>>32))
	}
	return offset
}
