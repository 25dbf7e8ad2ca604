package engine

import "fleetdrill/mockworker/blockhash"

// nullBlock is block 0, which belongs to nobody and is never freed. It doubles as "none" in every link.
const nullBlock = 0

// block is one physical block. It holds no pointers, so the collector never looks into the pool.
type block struct {
	hash    blockhash.Digest
	hashed  bool
	parent  uint64 // event integer of the hash before, for Blocks
	content uint64
	pos     int32 // place in the chain
	refs    int32 // running requests that hold it
	// prev and next link the free queue.
	prev, next int32
	// copyPrev and copyNext link the physical copies of one hash in the order they were stored; the first
	// one, which the table points at, has copyPrev pointing at the last, so that appending is one step.
	copyPrev, copyNext int32
}

// pool is the block pool: who holds what, which hash is where, and what is reused next.
type pool struct {
	blocks []block
	free   freeQueue
	table  table
}

func newPool(n int) *pool {
	p := &pool{blocks: make([]block, n)}
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

// touch takes a reference on a cached block, out of the free queue if nobody held it.
func (p *pool) touch(id int32) {
	b := &p.blocks[id]
	if b.refs == 0 {
		p.free.remove(id)
	}
	b.refs++
}

// take pops the next block to reuse, with one reference. When it was cached it leaves the cache, and
// evicted is the hash whose copy is gone.
func (p *pool) take() (id int32, evicted blockhash.Digest, wasCached bool) {
	id = p.free.pop()
	b := &p.blocks[id]
	b.refs = 1
	if !b.hashed {
		return id, evicted, false
	}
	evicted = b.hash
	p.table.remove(id)
	b.hashed, b.hash = false, blockhash.Digest{}
	return id, evicted, true
}

// release gives back a request's blocks, tail first, so that the tail of a prefix is evicted before its
// head. A hashed block goes to the end of the queue; one without a hash is useless to anybody and goes to
// the front.
func (p *pool) release(ids []int32) {
	for i := len(ids) - 1; i >= 0; i-- {
		b := &p.blocks[ids[i]]
		b.refs--
		switch {
		case b.refs > 0:
		case b.hashed:
			p.free.pushBack(ids[i])
		default:
			p.free.pushFront(ids[i])
		}
	}
}

// store puts a block that is full into the cache, beside the copies its hash already has.
func (p *pool) store(id int32, hash blockhash.Digest, parent, content uint64, pos int) {
	b := &p.blocks[id]
	b.hash, b.parent, b.content, b.pos, b.hashed = hash, parent, content, int32(pos), true
	p.table.add(id)
}

// clear empties the cache. The free queue keeps its order, as in vLLM.
func (p *pool) clear() {
	for i := range p.blocks[:p.free.fresh] {
		b := &p.blocks[i]
		if b.hashed {
			b.hashed, b.hash, b.copyPrev, b.copyNext = false, blockhash.Digest{}, nullBlock, nullBlock
		}
	}
	clear(p.table.slots)
}
