package chain

import (
	"sync/atomic"
	"unsafe"

	"fleetdrill/gateway/index"
)

const (
	// roots are the runs without blocks that chains begin under, by the first block's content: many, so
	// that the end of one chain rarely disturbs the reader of another.
	roots = 256
	// maxRun bounds the blocks of a run, so that growing one copies at most 32 KiB.
	maxRun = 4096
	// slabBits makes slabs of 1024 runs, 64 KiB.
	slabBits = 10
	slabRuns = 1 << slabBits
)

// run is a piece of a chain: consecutive blocks, each with one content hash, whoever holds them. It fills
// one cache line. Readers use the five atomic words, writers everything.
type run struct {
	// version is odd while a writer changes what readers see. It only grows, also when the run is used
	// again for another chain.
	version atomic.Uint64
	// content is the array of content hashes: ref 32 bits, length 16, capacity 16.
	content packed
	// cover is the holders that have the whole run: an array of bits (ref 32 bits, words 16), or, while there
	// was never more than one, that holder itself (holder 32 bits, words 0, then 1), because most runs are one
	// holder's and reading its bit elsewhere would be a cache miss.
	cover packed
	// partial is the table of holders that have some of it: ref 32 bits, entries 16, capacity 16. An entry
	// is (holder, leading blocks held); behind the entries come as many words that say where an entry's
	// bitmap is, 0 for a holder that has just its leading blocks.
	partial packed
	// children is the table of runs that continue this one: ref 32 bits, slots 16 bits as their log2.
	children packed

	// parent and offset say where this run is attached: behind that many blocks of its parent.
	parent, offset uint32
	// start is the chain position of the first block.
	start uint32
	// fulls counts the holders in cover; kids the runs attached here.
	fulls, kids uint32
	// stamp tells when a store last came through this run; of a run that nobody uses, it is the next such.
	stamp uint32
}

// prefetchRun asks for the header of a run.
func prefetchRun(r *run) { prefetchWord((*uint64)(unsafe.Pointer(r))) }

// packed is one word that holds a ref and two sizes, so that readers get all of them at once and a size
// always fits its array.
type packed struct{ word atomic.Uint64 }

func (p *packed) load() (ref, a, b uint32) {
	w := p.word.Load()
	return uint32(w >> 32), uint32(w>>16) & 0xffff, uint32(w) & 0xffff
}

func (p *packed) store(ref, a, b uint32) { p.word.Store(uint64(ref)<<32 | uint64(a)<<16 | uint64(b)) }

// length is the number of blocks.
func (r *run) length() uint32 { return uint32(r.content.word.Load()>>16) & 0xffff }

// place is a block: run in the high half, offset in the low one. 0 is no place, because the runs below
// roots have no blocks.
type place uint64

func placeOf(id, offset uint32) place { return place(id)<<32 | place(offset) }

func (p place) run() uint32    { return uint32(p >> 32) }
func (p place) offset() uint32 { return uint32(p) }

// rootOf is the run that a chain beginning with this content is attached to. The content is a hash.
func rootOf(content uint64) uint32 { return uint32(content*golden>>32) % roots }

// runs is the slab of all runs. Like the arena it only grows, and only the writer allocates and frees.
type runs struct {
	slabs  atomic.Pointer[[]*[slabRuns]run]
	next   uint32
	unused uint32 // first free run, 0 for none
	live   atomic.Int64
}

func newRuns() *runs {
	s := &runs{next: roots}
	s.slabs.Store(&[]*[slabRuns]run{new([slabRuns]run)})
	return s
}

// at returns a run that is known to exist.
func (s *runs) at(id uint32) *run { return &(*s.slabs.Load())[id>>slabBits][id&(slabRuns-1)] }

// find is at for an id that may be garbage, nil if there is none such.
func (s *runs) find(id uint32) *run {
	slabs := *s.slabs.Load()
	if int(id>>slabBits) >= len(slabs) {
		return nil
	}
	return &slabs[id>>slabBits][id&(slabRuns-1)]
}

// alloc returns an unused run.
func (s *runs) alloc() uint32 {
	s.live.Add(1)
	if id := s.unused; id != 0 {
		s.unused = s.at(id).stamp
		return id
	}
	if slabs := *s.slabs.Load(); int(s.next>>slabBits) >= len(slabs) {
		slab := new([slabRuns]run)
		huge(unsafe.Pointer(slab), unsafe.Sizeof(*slab))
		slabs = append(slabs, slab)
		s.slabs.Store(&slabs)
	}
	s.next++
	return s.next - 1
}

// release gives a run back.
func (s *runs) release(id uint32) {
	s.at(id).stamp = s.unused
	s.unused = id
	s.live.Add(-1)
}

// open marks a run as changing until close. Readers that meet it wait or try again.
func (x *Index) open(id uint32) {
	r := x.runs.at(id)
	if r.version.Load()&1 == 0 {
		r.version.Add(1)
		x.opened = append(x.opened, id)
	}
}

// close ends every change begun with open: to readers they happen at once.
func (x *Index) close() {
	for _, id := range x.opened {
		x.runs.at(id).version.Add(1)
	}
	x.opened = x.opened[:0]
}

// create attaches a run of new blocks, which h has, behind offset blocks of parent.
func (x *Index) create(h index.Holder, parent, offset uint32, contents []uint64) uint32 {
	id, n := x.runs.alloc(), uint32(len(contents))
	up, r := x.runs.at(parent), x.runs.at(id)
	r.parent, r.offset, r.start = parent, offset, up.start+offset
	r.fulls, r.kids = 0, 0
	ref, size := x.arena.alloc(roomFor(n))
	copyWords(x.arena.view(ref, n), contents)
	r.content.store(ref, n, size)
	r.partial.store(0, 0, 0)
	r.children.store(0, 0, 0)
	r.cover.store(0, 0, 0)
	x.coverAll(r, h)
	x.nodes.Add(int64(n))
	// Only now can a reader find it.
	x.attach(parent, offset, contents[0], id)
	return id
}

// extend appends new blocks to a run whose only whole holder has them.
func (x *Index) extend(id uint32, contents []uint64) {
	r, k := x.runs.at(id), uint32(len(contents))
	ref, n, size := r.content.load()
	if n+k > size {
		x.open(id)
		bigger, biggerSize := x.arena.alloc(roomFor(n + k))
		moveWords(x.arena.view(bigger, n), x.arena.view(ref, n))
		r.content.store(bigger, n, biggerSize)
		x.arena.release(ref, size)
		ref, size = bigger, biggerSize
	}
	copyWords(x.arena.view(ref, n+k)[n:], contents)
	// One word makes the new blocks visible, whole: no version step is needed.
	r.content.store(ref, n+k, size)
	x.nodes.Add(int64(k))
}

// roomFor is the capacity wanted for n blocks: an eighth more, because answers are appended block by block.
func roomFor(n uint32) uint32 { return n + max(2, n/8) }

// settle restores what must be true of a run after blocks of it were given up or a child died: somebody
// has its last block or continues behind it, and somebody needs it at all.
func (x *Index) settle(id uint32) {
	for id >= roots {
		r := x.runs.at(id)
		if _, partials, _ := r.partial.load(); r.fulls == 0 && partials == 0 && r.kids == 0 {
			parent := r.parent
			x.bury(id)
			id = parent
			continue
		}
		if r.fulls == 0 {
			x.truncate(id)
		}
		return
	}
}

// bury detaches a run that nobody needs and frees what it is made of.
func (x *Index) bury(id uint32) {
	r := x.runs.at(id)
	ref, n, size := r.content.load()
	x.detach(r.parent, r.offset, atomic.LoadUint64(&x.arena.view(ref, 1)[0]), id)
	x.open(id)
	x.arena.release(ref, size)
	r.content.store(0, 0, 0)
	if ref, _, room := r.partial.load(); ref != 0 {
		x.arena.release(ref, 2*room)
		r.partial.store(0, 0, 0)
	}
	x.nodes.Add(-int64(n))
	x.runs.release(id)
}

// truncate cuts the blocks that nobody has and nobody continues behind off the end of a run that no
// holder has whole. Holders that have all of what remains become whole holders.
func (x *Index) truncate(id uint32) {
	r := x.runs.at(id)
	ref, n, size := r.content.load()
	reach := x.reach(r, n)
	if reach == n {
		return
	}
	x.open(id)
	r.content.store(ref, reach, size)
	x.nodes.Add(int64(reach) - int64(n))
	x.promote(r, reach)
}
