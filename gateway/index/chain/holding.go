package chain

import (
	"math/bits"
	"sync/atomic"

	"fleetdrill/gateway/index"
)

// holding is what one holder has of one run, as a writer sees it.
type holding struct {
	// lead counts the leading blocks; all of the run's when whole.
	lead  uint32
	whole bool
	// entry is the holder's index in the partial table, -1 without one; bitmap its second word: ref 32
	// bits and words 32 bits, 0 for a holder that has its leading blocks and no other.
	entry  int
	bitmap uint64
}

// holding finds what h has of r.
func (x *Index) holding(r *run, h index.Holder) holding {
	if x.covers(r, h) {
		return holding{lead: r.length(), whole: true, entry: -1}
	}
	ref, n, room := r.partial.load()
	if n == 0 {
		return holding{entry: -1}
	}
	table := x.arena.view(ref, 2*room)
	for i := range n {
		if e := atomic.LoadUint64(&table[i]); uint32(e>>32) == uint32(h) {
			return holding{lead: uint32(e), entry: int(i), bitmap: atomic.LoadUint64(&table[room+i])}
		}
	}
	return holding{entry: -1}
}

// has reports whether the block at offset is held.
func (x *Index) has(s holding, offset uint32) bool {
	if offset < s.lead {
		return true
	}
	if s.bitmap == 0 || offset >= uint32(s.bitmap)*64 {
		return false
	}
	words := x.arena.view(uint32(s.bitmap>>32), uint32(s.bitmap))
	return atomic.LoadUint64(&words[offset/64])>>(offset%64)&1 != 0
}

// covers reports whether h has all of r.
func (x *Index) covers(r *run, h index.Holder) bool {
	ref, words, sole := r.cover.load()
	if uint32(h)/64 >= words {
		return sole != 0 && ref == uint32(h)
	}
	return atomic.LoadUint64(&x.arena.view(ref, words)[h/64])>>(h%64)&1 != 0
}

// coverAll makes h, which has not all of r yet, one of those that have. The array of bits begins with the second of
// them and grows with the highest that there ever was.
func (x *Index) coverAll(r *run, h index.Holder) {
	ref, words, sole := r.cover.load()
	r.fulls++
	if words == 0 && sole == 0 {
		r.cover.store(uint32(h), 0, 1)
		return
	}
	need := uint32(h)/64 + 1
	if sole != 0 {
		need = max(need, ref/64+1)
	}
	if need > words {
		bigger, size := x.arena.alloc(need)
		view := x.arena.view(bigger, size)
		zeroWords(view)
		if sole != 0 {
			setBit(view, ref, true)
		} else {
			moveWords(view, x.arena.view(ref, words))
			x.arena.release(ref, words)
		}
		ref, words = bigger, size
		r.cover.store(ref, words, 0)
	}
	setBit(x.arena.view(ref, words), uint32(h), true)
}

// uncover takes h out of those that have all of r. The bits go with the last.
func (x *Index) uncover(r *run, h index.Holder) {
	ref, words, _ := r.cover.load()
	if r.fulls--; r.fulls > 0 {
		setBit(x.arena.view(ref, words), uint32(h), false)
		return
	}
	r.cover.store(0, 0, 0)
	if words > 0 {
		x.arena.release(ref, words)
	}
}

// setLead makes the first lead blocks, and no other, what h has of r. The run is open.
func (x *Index) setLead(r *run, h index.Holder, s holding, lead uint32) {
	if s.bitmap != 0 {
		x.arena.release(uint32(s.bitmap>>32), uint32(s.bitmap))
	}
	whole := lead == r.length()
	if s.whole && !whole {
		x.uncover(r, h)
	}
	switch {
	case (whole || lead == 0) && s.entry >= 0:
		x.dropEntry(r, s.entry)
	case whole || lead == 0:
	case s.entry >= 0:
		x.writeEntry(r, s.entry, h, lead, 0)
	default:
		x.addEntry(r, h, lead, 0)
	}
	if whole && !s.whole {
		x.coverAll(r, h)
	}
}

// scatter gives h a bitmap of what it has of r, so that single blocks can be taken or added.
func (x *Index) scatter(r *run, h index.Holder, s holding) holding {
	if s.bitmap != 0 {
		return s
	}
	ref, size := x.arena.alloc((r.length() + 63) / 64)
	words := x.arena.view(ref, size)
	zeroWords(words)
	for i := range s.lead {
		setBit(words, i, true)
	}
	out := holding{lead: s.lead, entry: s.entry, bitmap: uint64(ref)<<32 | uint64(size)}
	if s.whole {
		x.uncover(r, h)
	}
	if s.entry >= 0 {
		x.writeEntry(r, s.entry, h, s.lead, out.bitmap)
	} else {
		out.entry = x.addEntry(r, h, s.lead, out.bitmap)
	}
	return out
}

// setBlock adds or takes one block of a scattered holding. gather must follow.
func (x *Index) setBlock(r *run, h index.Holder, s holding, offset uint32, held bool) holding {
	ref, size := uint32(s.bitmap>>32), uint32(s.bitmap)
	if offset >= size*64 { // the run grew since
		bigger, biggerSize := x.arena.alloc(offset/64 + 1)
		words := x.arena.view(bigger, biggerSize)
		zeroWords(words)
		moveWords(words, x.arena.view(ref, size))
		x.arena.release(ref, size)
		ref, size = bigger, biggerSize
		s.bitmap = uint64(ref)<<32 | uint64(size)
		x.writeEntry(r, s.entry, h, s.lead, s.bitmap)
	}
	setBit(x.arena.view(ref, size), offset, held)
	return s
}

// gather counts the leading blocks of a scattered holding anew, and ends the bitmap if they are all.
func (x *Index) gather(r *run, h index.Holder, s holding) {
	words := x.arena.view(uint32(s.bitmap>>32), uint32(s.bitmap))
	var lead, total uint32
	for i := range words {
		w := atomic.LoadUint64(&words[i])
		total += uint32(bits.OnesCount64(w))
		if lead == uint32(i)*64 {
			lead += uint32(bits.TrailingZeros64(^w))
		}
	}
	if lead == total {
		x.setLead(r, h, s, lead)
		return
	}
	x.writeEntry(r, s.entry, h, lead, s.bitmap)
}

// setBit sets or clears a bit of an array.
func setBit(words []uint64, i uint32, on bool) {
	w := &words[i/64]
	bit := uint64(1) << (i % 64)
	if on {
		atomic.StoreUint64(w, atomic.LoadUint64(w)|bit)
	} else {
		atomic.StoreUint64(w, atomic.LoadUint64(w)&^bit)
	}
}

// writeEntry overwrites an entry of the partial table.
func (x *Index) writeEntry(r *run, entry int, h index.Holder, lead uint32, bitmap uint64) {
	ref, _, room := r.partial.load()
	table := x.arena.view(ref, 2*room)
	atomic.StoreUint64(&table[int(room)+entry], bitmap)
	atomic.StoreUint64(&table[entry], uint64(h)<<32|uint64(lead))
}

// addEntry appends an entry to the partial table and returns its index.
func (x *Index) addEntry(r *run, h index.Holder, lead uint32, bitmap uint64) int {
	ref, n, room := r.partial.load()
	x.maxPartials = max(x.maxPartials, n+1)
	if n == room {
		wide := max(2, 2*room)
		bigger, _ := x.arena.alloc(2 * wide)
		if ref != 0 {
			from, to := x.arena.view(ref, 2*room), x.arena.view(bigger, 2*wide)
			moveWords(to, from[:n])
			moveWords(to[wide:], from[room:room+n])
			x.arena.release(ref, 2*room)
		}
		ref, room = bigger, wide
	}
	r.partial.store(ref, n+1, room)
	x.writeEntry(r, int(n), h, lead, bitmap)
	return int(n)
}

// dropEntry takes an entry out; the last one takes its place.
func (x *Index) dropEntry(r *run, entry int) {
	ref, n, room := r.partial.load()
	n--
	if n == 0 {
		r.partial.store(0, 0, 0)
		x.arena.release(ref, 2*room)
		return
	}
	table := x.arena.view(ref, 2*room)
	atomic.StoreUint64(&table[entry], atomic.LoadUint64(&table[n]))
	atomic.StoreUint64(&table[int(room)+entry], atomic.LoadUint64(&table[room+n]))
	r.partial.store(ref, n, room)
}

// reach is how many blocks of a run of n somebody has or continues behind, when nobody has all.
func (x *Index) reach(r *run, n uint32) (reach uint32) {
	ref, entries, room := r.partial.load()
	if entries > 0 {
		table := x.arena.view(ref, 2*room)
		for i := range entries {
			reach = max(reach, uint32(atomic.LoadUint64(&table[i])), x.lastBit(atomic.LoadUint64(&table[room+i])))
		}
	}
	if reach < n {
		reach = max(reach, x.lastChild(r, n))
	}
	return reach
}

// lastBit is one more than the highest block of a bitmap, 0 without one.
func (x *Index) lastBit(bitmap uint64) uint32 {
	if bitmap == 0 {
		return 0
	}
	words := x.arena.view(uint32(bitmap>>32), uint32(bitmap))
	for i := len(words) - 1; i >= 0; i-- {
		if w := atomic.LoadUint64(&words[i]); w != 0 {
			return uint32(i*64 + bits.Len64(w))
		}
	}
	return 0
}

// promote makes whole holders of those whose leading blocks are all n that are left of r.
func (x *Index) promote(r *run, n uint32) {
	_, entries, _ := r.partial.load()
	for i := int(entries) - 1; i >= 0; i-- { // from the end, because dropEntry fills gaps from there
		ref, _, room := r.partial.load()
		if e := atomic.LoadUint64(&x.arena.view(ref, 2*room)[i]); uint32(e) == n {
			x.dropEntry(r, i)
			x.coverAll(r, index.Holder(e>>32))
		}
	}
}
