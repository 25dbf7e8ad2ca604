package truth

// blocks is an announced set. The blocks lie in the order in which they came, and what an eviction leaves is
// filled from its end: a chain's blocks stay neighbours, so that storing or removing a chain goes straight
// through memory. A small index finds a hash. A worker that evicts asks for every block twice in its life,
// and hardly ever finds memory that it used lately: what is random must be small.
type blocks struct {
	slots []slot // open addressing with linear probing
	rows  []row
	hole  int32 // the row that is filled next, as a slot has it; 0 when none is empty
	n     int
	// warmed is what warm read: a sum without a meaning, so that it is read at all.
	warmed uint32
}

// slot is one more than the place of a row, 0 for an empty slot, and 32 mixed bits of its hash. They say where
// probing begins, and nearly all that it asks of a row on the way, without going there.
type slot struct {
	row int32
	tag uint32
}

// row is one block; copies 0 is a hole, and pos then leads to the next one.
type row struct {
	hash, parent, content uint64
	pos                   int32
	// packed is the copies, of which a pool has fewer than 2^24, above the group and 1, so that NoGroup
	// fits.
	packed uint32
}

const (
	groupBits = 8
	firstSize = 16
	// At most three of five slots are taken. With three of four a block would take 4 bytes less, and the way to
	// an empty slot, which every store and every removal goes, would be more than twice as long.
	maxTaken, ofSlots = 3, 5
)

func (r *row) copies() uint32 { return r.packed >> groupBits }

func (r *row) entry() Entry {
	return Entry{
		Parent: r.parent, Content: r.content, Position: r.pos, Copies: r.copies(), Group: int16(r.packed&(1<<groupBits-1)) - 1,
	}
}

// tagOf mixes, because engine hashes may be small integers in tests and in other engines, and slots are taken
// from the upper bits.
func tagOf(hash uint64) uint32 {
	const golden = 0x9e3779b97f4a7c15
	return uint32(hash * golden >> 32)
}

// home is the slot where a tag belongs.
func (b *blocks) home(tag uint32) int {
	return int(uint64(tag) * uint64(len(b.slots)) >> 32) // rows, and so slots, are fewer than 2^32
}

// find is the slot where a hash is, or the empty one where it would go. There must be slots.
func (b *blocks) find(hash uint64) int {
	tag := tagOf(hash)
	at := b.home(tag)
	for s := b.slots[at]; s.row != 0 && (s.tag != tag || b.rows[s.row-1].hash != hash); s = b.slots[at] {
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

// warm reads the slots of hashes that come next. One by one they would come from memory in turn, because what
// follows depends on what is there; here the processor waits for many at once.
func (b *blocks) warm(hashes []uint64) {
	if len(b.slots) == 0 {
		return
	}
	for _, h := range hashes {
		b.warmed += b.slots[b.home(tagOf(h))].tag
	}
}

// get is the entry of a hash.
func (b *blocks) get(hash uint64) (e Entry, ok bool) {
	if b.n == 0 {
		return e, false
	}
	s := b.slots[b.find(hash)]
	if s.row == 0 {
		return e, false
	}
	return b.rows[s.row-1].entry(), true
}

// add takes in one copy and says whether the hash is new. The first placement stays: a chained hash has one
// parent.
func (b *blocks) add(hash uint64, e Entry) (first bool) {
	if ofSlots*(b.n+1) > maxTaken*len(b.slots) {
		b.grow()
	}
	at := b.find(hash)
	if s := b.slots[at]; s.row != 0 {
		b.rows[s.row-1].packed += 1 << groupBits
		return false
	}
	id := b.place()
	b.rows[id-1] = row{hash: hash, parent: e.Parent, content: e.Content, pos: e.Position, packed: 1<<groupBits | uint32(e.Group+1)}
	b.slots[at] = slot{row: id, tag: tagOf(hash)}
	b.n++
	return true
}

// place is a row to fill: the hole that was left last, or a new one behind all others.
func (b *blocks) place() int32 {
	if id := b.hole; id != 0 {
		b.hole = b.rows[id-1].pos
		return id
	}
	b.rows = append(b.rows, row{})
	return int32(len(b.rows))
}

// drop lets go of one copy, returns what was held, and says whether it was the last.
func (b *blocks) drop(hash uint64) (old Entry, held, last bool) {
	if b.n == 0 {
		return old, false, false
	}
	at := b.find(hash)
	id := b.slots[at].row
	if id == 0 {
		return old, false, false
	}
	r := &b.rows[id-1]
	old = r.entry()
	if old.Copies > 1 {
		r.packed -= 1 << groupBits
		return old, true, false
	}
	*r = row{pos: b.hole}
	b.hole = id
	b.vacate(at)
	b.n--
	return old, true, true
}

// vacate empties a slot and moves later ones of the run back over it, so that no probe stops short.
func (b *blocks) vacate(hole int) {
	for at := b.after(hole); b.slots[at].row != 0; at = b.after(at) {
		home := b.home(b.slots[at].tag)
		if between := home <= hole && hole < at; between && home <= at || home > at && (home <= hole || hole < at) {
			b.slots[hole] = b.slots[at]
			hole = at
		}
	}
	b.slots[hole] = slot{}
}

func (b *blocks) grow() {
	old := b.slots
	b.slots = make([]slot, max(firstSize, len(old)+len(old)/2)) // doubling would leave more empty
	for _, s := range old {
		if s.row == 0 {
			continue
		}
		at := b.home(s.tag)
		for b.slots[at].row != 0 {
			at = b.after(at)
		}
		b.slots[at] = s
	}
}

// entries is a copy as a map.
func (b *blocks) entries() map[uint64]Entry {
	m := make(map[uint64]Entry, b.n)
	for i := range b.rows {
		if r := &b.rows[i]; r.packed != 0 {
			m[r.hash] = r.entry()
		}
	}
	return m
}
