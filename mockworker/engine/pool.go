package engine

import (
	"fleetdrill/internal/tokens"
	"fleetdrill/mockworker/blockhash"
)

// nullBlock is block 0, which belongs to nobody and is never freed. It doubles as "none" in every link,
// and stands in a window group's table for blocks that fell out of the window.
const nullBlock = 0

// block is one physical block. It holds no pointers, so the collector never looks into the pool, and is
// packed to 64 bytes, a line of the processor's cache.
type block struct {
	hash    blockhash.Packed
	parent  uint64 // event integer of the hash before, for Blocks
	content uint64
	pos     int32 // place in the chain
	state   state
	// prev and next link the free queue.
	prev, next int32
}

// state packs how many running requests hold a block (bits 0 to 23), its cache group (24 to 30) and
// whether it is in the prefix cache (31). The limits of Config keep each within its bits.
type state uint32

const (
	refBits  = 24
	maxRefs  = 1<<refBits - 1
	groupMax = 1<<7 - 1
	hashed   = state(1 << 31)
)

func (s state) refs() int32  { return int32(s & maxRefs) }
func (s state) group() int32 { return int32(s >> refBits & groupMax) }
func (s state) hashed() bool { return s&hashed != 0 }

// pool is the block pool: who holds what, which hash is where, and what is reused next.
type pool struct {
	blocks []block
	free   freeQueue
	table  table
	form   blockhash.Digest // length and form of every hash stored
	sums   []sum            // of each group
}

// sum is the number of distinct hashes and their digest (tokens.Digest), kept up so that nobody has to count.
type sum struct {
	blocks int
	digest uint64
}

func newPool(n, groups int) *pool {
	p := &pool{blocks: make([]block, n), sums: make([]sum, groups)}
	p.free = freeQueue{blocks: p.blocks, fresh: 1, size: n - 1}
	p.table = newTable(p.blocks, n)
	return p
}

// usage is the share of blocks in use; the null block counts on neither side.
func (p *pool) usage() float64 {
	return 1 - float64(p.free.size)/float64(len(p.blocks)-1)
}

// idle says that no block is in use.
func (p *pool) idle() bool { return p.free.size == len(p.blocks)-1 }

// first is the copy of a hash in a group that was stored first, nullBlock when it is not cached.
func (p *pool) first(hash *blockhash.Digest, group int32) int32 {
	packed := hash.Pack()
	return p.table.first(&packed, hash.EventInt(), group)
}

// hashOf is the hash of a cached block.
func (p *pool) hashOf(id int32) blockhash.Digest { return p.blocks[id].hash.Unpack(p.form) }

// keyOf is the event integer of a cached block's hash.
func (p *pool) keyOf(id int32) uint64 {
	hash := p.hashOf(id)
	return hash.EventInt()
}

// touch takes a reference on a cached block, out of the free queue if nobody held it.
func (p *pool) touch(id int32) {
	b := &p.blocks[id]
	if b.state.refs() == 0 {
		p.free.remove(id)
	}
	b.state++
}

// evicted is what a block held that left the cache.
type evicted struct {
	hash            blockhash.Digest
	parent, content uint64
	pos, group      int32
}

// take pops the next block to reuse, with one reference. When it was cached it leaves the cache, and was
// is what is gone.
func (p *pool) take() (id int32, was evicted, wasCached bool) {
	id = p.free.pop()
	b := &p.blocks[id]
	if !b.state.hashed() {
		b.state = 1
		return id, was, false
	}
	was = evicted{hash: p.hashOf(id), parent: b.parent, content: b.content, pos: b.pos, group: b.state.group()}
	if key := was.hash.EventInt(); p.table.remove(id, key) {
		s := &p.sums[was.group]
		s.blocks, s.digest = s.blocks-1, s.digest-tokens.DigestTerm(key)
	}
	b.state = 1
	return id, was, true
}

// release gives back a request's blocks, tail first, so that the tail of a prefix is evicted before its
// head. A hashed block goes to the end of the queue; one without a hash is useless to anybody and goes to
// the front.
func (p *pool) release(ids []int32) {
	for i := len(ids) - 1; i >= 0; i-- {
		if ids[i] == nullBlock {
			continue
		}
		b := &p.blocks[ids[i]]
		b.state--
		switch {
		case b.state.refs() > 0:
		case b.state.hashed():
			p.free.pushBack(ids[i])
		default:
			p.free.pushFront(ids[i])
		}
	}
}

// store puts a block that is full into a group's cache, beside the copies its hash already has.
func (p *pool) store(id int32, hash blockhash.Digest, group int32, parent, content uint64, pos int) {
	b := &p.blocks[id]
	b.hash, b.parent, b.content, b.pos = hash.Pack(), parent, content, int32(pos)
	b.state = b.state&maxRefs | state(group)<<refBits | hashed
	p.form = hash
	if key := hash.EventInt(); p.table.add(id, key) {
		s := &p.sums[group]
		s.blocks, s.digest = s.blocks+1, s.digest+tokens.DigestTerm(key)
	}
}

// clear empties the cache. The free queue keeps its order, as in vLLM.
func (p *pool) clear() {
	for i := range p.blocks[:p.free.fresh] {
		p.blocks[i].state &= maxRefs
	}
	clear(p.table.slots)
	clear(p.table.links)
	clear(p.sums)
}

// each yields the first copy of every hash and group that is cached, until yield returns false.
func (p *pool) each(yield func(id int32) bool) {
	for _, s := range p.table.slots {
		if s.id != nullBlock && !yield(s.id) {
			return
		}
	}
}
