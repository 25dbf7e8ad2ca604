package sim

import (
	"fleetdrill/internal/tokens"
	"fleetdrill/oracle"
	"fleetdrill/replayer/plan"
	"fleetdrill/replayer/trace"
)

// reuse says what model caches would have reused of each prompt, in tokens, in the order of a plan. It counts
// as the caches of package oracle do, which see a prompt block by block; here a trace's own block of
// trace.BlockTokens tokens is one step, since equal ids stand for equal tokens.
type reuse interface {
	serve(q *plan.Request, p *prompt) (pooled, unbounded int)
}

// newReuse is the reuse for engines of this block size, in tokens, and a pool of so many of their blocks.
func newReuse(blockSize, poolBlocks int) reuse {
	if trace.BlockTokens%blockSize != 0 {
		return &blockReuse{blockSize: blockSize, pooled: oracle.NewPooled(poolBlocks)}
	}
	return &idReuse{
		blockSize: blockSize, per: trace.BlockTokens / blockSize, held: map[uint64]int32{},
		pool: idPool{capacity: poolBlocks, ring: make([]segment, 1), last: map[uint64]int32{}},
	}
}

// blockReuse asks the model caches themselves: an id's blocks do not end where an engine's do.
type blockReuse struct {
	blockSize int
	pooled    *oracle.Pooled
	unbounded oracle.Unbounded
}

func (r *blockReuse) serve(_ *plan.Request, p *prompt) (pooled, unbounded int) {
	n := len(p.tokens)
	return oracle.Tokens(r.pooled.Serve(p.chain), r.blockSize, n), oracle.Tokens(r.unbounded.Serve(p.chain), r.blockSize, n)
}

// idReuse walks a prompt by its ids. The blocks of an id that a cache holds are always its first ones.
type idReuse struct {
	blockSize int
	per       int              // engine blocks of a whole id
	held      map[uint64]int32 // unbounded: prefix of ids -> blocks held of its last id
	pool      idPool
	prefixes  []uint64
}

func (r *idReuse) serve(q *plan.Request, p *prompt) (pooled, unbounded int) {
	n, blocks := len(p.tokens), len(p.chain)
	r.prefixes = r.prefixes[:0]
	prefix, match, on := uint64(0), 0, true
	for left, i := blocks, 0; left > 0; i++ {
		prefix = tokens.PrefixNext(prefix, q.Row.IDs[i])
		r.prefixes = append(r.prefixes, prefix)
		want := int32(min(left, r.per))
		held := r.held[prefix]
		if on {
			match += int(min(held, want))
			on = held >= want
		}
		if held < want {
			r.held[prefix] = want
		}
		left -= int(want)
	}
	return oracle.Tokens(r.pool.serve(r.prefixes, blocks, r.per), r.blockSize, n), oracle.Tokens(match, r.blockSize, n)
}

// idPool is a pool of blocks that evicts the least recently used one, as oracle.Pooled, kept in segments: a
// run of one id's blocks that were last used together. Used from the last to the first, a segment's highest
// block is its oldest.
type idPool struct {
	capacity, size int // blocks
	// ring[0] anchors a ring through all segments: the newest behind it (older), the oldest before it (newer).
	ring []segment
	last map[uint64]int32 // prefix -> its segment of the highest blocks
	free []int32
}

// segment are the blocks from..to of an id under a prefix.
type segment struct {
	prefix       uint64
	from, to     int32
	newer, older int32
	lower        int32 // the segment of the id's blocks below from, 0 for none
}

// serve is the number of leading blocks that are held of the first so many blocks of the ids; then they are
// the most recently used.
func (p *idPool) serve(prefixes []uint64, blocks, per int) (match int) {
	blocks = min(blocks, p.capacity)
	for i := 0; i*per < blocks; i++ {
		want := min(blocks-i*per, per)
		got := min(int(p.heldOf(prefixes[i])), want)
		if match += got; got < want {
			break
		}
	}
	for i := (blocks - 1) / per; i >= 0 && blocks > 0; i-- {
		p.use(prefixes[i], int32(min(blocks-i*per, per)))
	}
	return match
}

// heldOf is how many blocks of a prefix's last id are held.
func (p *idPool) heldOf(prefix uint64) int32 { return p.ring[p.last[prefix]].to }

// use makes the first want blocks of an id the newest ones. New ones come first, each in place of the oldest
// block when the pool is full, which may be one of this id's own.
func (p *idPool) use(prefix uint64, want int32) {
	for at := want; ; {
		held := p.heldOf(prefix)
		if at <= held {
			break
		}
		room := min(at-held, int32(p.capacity-p.size))
		if room == 0 {
			room = p.evict(at - held)
		}
		p.size += int(room)
		at -= room
	}
	p.renew(prefix, want)
}

// evict takes up to so many of the oldest blocks out, all of one segment, and returns how many.
func (p *idPool) evict(most int32) int32 {
	i := p.ring[0].newer
	s := &p.ring[i]
	n := min(most, s.to-s.from)
	p.size -= int(n)
	if s.to -= n; s.to == s.from {
		p.setLast(s.prefix, s.lower)
		p.drop(i)
	}
	return n
}

// renew puts the id's first want blocks into one segment at the newest end. Blocks behind them stay where
// they are.
func (p *idPool) renew(prefix uint64, want int32) {
	above, at := int32(0), p.last[prefix]
	for at != 0 && p.ring[at].from >= want {
		above, at = at, p.ring[at].lower
	}
	if at != 0 && p.ring[at].to > want { // it keeps what is above
		below := p.ring[at].lower
		p.ring[at].from = want
		above, at = at, below
	}
	for at != 0 {
		lower := p.ring[at].lower
		p.drop(at)
		at = lower
	}
	i := p.insert(segment{prefix: prefix, to: want})
	if above != 0 {
		p.ring[above].lower = i
	} else {
		p.last[prefix] = i
	}
}

func (p *idPool) setLast(prefix uint64, i int32) {
	if i == 0 {
		delete(p.last, prefix)
		return
	}
	p.last[prefix] = i
}

// insert adds a segment at the newest end.
func (p *idPool) insert(s segment) int32 {
	i := int32(len(p.ring))
	if n := len(p.free); n > 0 {
		i, p.free = p.free[n-1], p.free[:n-1]
	} else {
		p.ring = append(p.ring, segment{})
	}
	s.newer, s.older = 0, p.ring[0].older
	p.ring[i] = s
	p.ring[s.older].newer = i
	p.ring[0].older = i
	return i
}

func (p *idPool) drop(i int32) {
	s := p.ring[i]
	p.ring[s.newer].older, p.ring[s.older].newer = s.older, s.newer
	p.free = append(p.free, i)
}
