// Package lru is the block pool of the engines that benches make events with: blocks by hash, held by whoever
// uses them, evicted least recently used first. It knows neither time nor requests.
package lru

import "iter"

// none is no block.
const none = int32(-1)

// block is free, held (refs > 0), or cached and in the list of those that may be evicted.
type block struct {
	hash       uint64
	prev, next int32
	refs       int32
}

// Pool is a fixed number of blocks. Make it with New.
type Pool struct {
	blocks []block
	free   []int32
	cached map[uint64]int32
	// oldest and newest bound the list of blocks that nobody holds, oldest first. A chain's blocks enter it
	// from the last to the first, and whoever uses a block uses those in front of it too, so the oldest is
	// always a leaf.
	oldest, newest int32
	idle           int
}

// New is a pool of n free blocks.
func New(n int) *Pool {
	p := &Pool{blocks: make([]block, n), cached: make(map[uint64]int32, n), oldest: none, newest: none}
	for i := range p.blocks {
		p.free = append(p.free, int32(n-1-i))
	}
	return p
}

// Size is the number of blocks.
func (p *Pool) Size() int { return len(p.blocks) }

// Len is the number of cached blocks, held ones included.
func (p *Pool) Len() int { return len(p.cached) }

// Room is how many blocks could be filled now.
func (p *Pool) Room() int { return len(p.free) + p.idle }

// Hashes are those of the cached blocks, in no order.
func (p *Pool) Hashes() iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for hash := range p.cached {
			if !yield(hash) {
				return
			}
		}
	}
}

// Match is how many leading blocks of a chain are cached, and how many of those nobody holds.
func (p *Pool) Match(chain []uint64) (hit, idle int) {
	for _, hash := range chain {
		id, ok := p.cached[hash]
		if !ok {
			break
		}
		if p.blocks[id].refs == 0 {
			idle++
		}
		hit++
	}
	return hit, idle
}

// Hold takes a cached block.
func (p *Pool) Hold(hash uint64) int32 {
	id := p.cached[hash]
	if p.blocks[id].refs == 0 {
		p.unlink(id)
	}
	p.blocks[id].refs++
	return id
}

// Fill takes a block for a new hash. Without a free one the oldest idle one is evicted; there must be room.
func (p *Pool) Fill(hash uint64) (id int32, gone uint64, evicted bool) {
	if n := len(p.free); n > 0 {
		id, p.free = p.free[n-1], p.free[:n-1]
	} else {
		id, evicted = p.oldest, true
		gone = p.blocks[id].hash
		p.unlink(id)
		delete(p.cached, gone)
	}
	p.blocks[id] = block{hash: hash, refs: 1, prev: none, next: none}
	p.cached[hash] = id
	return id, gone, evicted
}

// Release gives the blocks of one chain back, the last first. They stay cached.
func (p *Pool) Release(chain []int32) {
	for i := len(chain) - 1; i >= 0; i-- {
		if b := &p.blocks[chain[i]]; b.refs > 1 {
			b.refs--
		} else {
			b.refs = 0
			p.push(chain[i])
		}
	}
}

// push puts a block at the newest end of the idle list.
func (p *Pool) push(id int32) {
	b := &p.blocks[id]
	b.prev, b.next = p.newest, none
	if p.newest == none {
		p.oldest = id
	} else {
		p.blocks[p.newest].next = id
	}
	p.newest = id
	p.idle++
}

func (p *Pool) unlink(id int32) {
	b := &p.blocks[id]
	if b.prev == none {
		p.oldest = b.next
	} else {
		p.blocks[b.prev].next = b.next
	}
	if b.next == none {
		p.newest = b.prev
	} else {
		p.blocks[b.next].prev = b.prev
	}
	p.idle--
}
