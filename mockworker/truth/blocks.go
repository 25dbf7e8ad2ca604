package truth

import "math/bits"

// blocks is an announced set: open addressing with linear probing, 32 bytes a slot, so that taking in or
// letting go of a block touches one place in memory, where a map of entries would be asked twice. A worker
// that evicts does this for every block.
type blocks struct {
	slots []blockSlot
	n     int
}

// blockSlot is one block; copies 0 is an empty slot.
type blockSlot struct {
	hash, parent, content uint64
	pos                   int32
	// packed is the copies, of which a pool has fewer than 2^24, above the group and 1, so that NoGroup
	// fits.
	packed uint32
}

const (
	groupBits = 8
	firstSize = 16
)

func (s *blockSlot) copies() uint32 { return s.packed >> groupBits }

func (s *blockSlot) entry() Entry {
	return Entry{
		Parent: s.parent, Content: s.content, Position: s.pos, Copies: s.copies(), Group: int16(s.packed&(1<<groupBits-1)) - 1,
	}
}

// home is where a hash belongs. Engine hashes may be small integers in tests and in other engines, so they
// are mixed.
func (b *blocks) home(hash uint64) int {
	const golden = 0x9e3779b97f4a7c15
	hi, _ := bits.Mul64(hash*golden, uint64(len(b.slots)))
	return int(hi)
}

// find is the slot where a hash is, or the empty one where it would go. There must be slots.
func (b *blocks) find(hash uint64) int {
	at := b.home(hash)
	for b.slots[at].packed != 0 && b.slots[at].hash != hash {
		at = b.after(at)
	}
	return at
}

func (b *blocks) after(at int) int {
	if at++; at < len(b.slots) {
		return at
	}
	return 0
}

// get is the entry of a hash.
func (b *blocks) get(hash uint64) (e Entry, ok bool) {
	if b.n == 0 {
		return e, false
	}
	s := &b.slots[b.find(hash)]
	if s.packed == 0 {
		return e, false
	}
	return s.entry(), true
}

// add takes in one copy and says whether the hash is new. The first placement stays: a chained hash has one
// parent.
func (b *blocks) add(hash uint64, e Entry) (first bool) {
	if 4*(b.n+1) > 3*len(b.slots) {
		b.grow()
	}
	s := &b.slots[b.find(hash)]
	if s.packed != 0 {
		s.packed += 1 << groupBits
		return false
	}
	*s = blockSlot{hash: hash, parent: e.Parent, content: e.Content, pos: e.Position, packed: 1<<groupBits | uint32(e.Group+1)}
	b.n++
	return true
}

// drop lets go of one copy, returns what was held, and says whether it was the last.
func (b *blocks) drop(hash uint64) (old Entry, held, last bool) {
	if b.n == 0 {
		return old, false, false
	}
	at := b.find(hash)
	s := &b.slots[at]
	if s.packed == 0 {
		return old, false, false
	}
	old = s.entry()
	if old.Copies > 1 {
		s.packed -= 1 << groupBits
		return old, true, false
	}
	b.vacate(at)
	b.n--
	return old, true, true
}

// vacate empties a slot and moves later ones of the run back over it, so that no probe stops short.
func (b *blocks) vacate(hole int) {
	for at := b.after(hole); b.slots[at].packed != 0; at = b.after(at) {
		home := b.home(b.slots[at].hash)
		if between := home <= hole && hole < at; between && home <= at || home > at && (home <= hole || hole < at) {
			b.slots[hole] = b.slots[at]
			hole = at
		}
	}
	b.slots[hole] = blockSlot{}
}

func (b *blocks) grow() {
	old := b.slots
	b.slots = make([]blockSlot, max(firstSize, len(old)+len(old)/2)) // doubling would leave more empty
	for i := range old {
		if old[i].packed != 0 {
			b.slots[b.find(old[i].hash)] = old[i]
		}
	}
}

// entries is a copy as a map.
func (b *blocks) entries() map[uint64]Entry {
	m := make(map[uint64]Entry, b.n)
	for i := range b.slots {
		if s := &b.slots[i]; s.packed != 0 {
			m[s.hash] = s.entry()
		}
	}
	return m
}
