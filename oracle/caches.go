package oracle

import "fleetdrill/internal/tokens"

// The model caches say what reuse was possible: they see every prompt in the order of arrival, with no
// engine, no delay and no eviction that an engine would do on its own account.
//
// A prompt is a chain: one number per block from the root, which names the block's own content. That may
// be a block id of a trace or a content hash of an engine's block size (tokens.AppendChain). A block is
// held under its whole prefix, so equal contents behind different prefixes are different blocks.

// Unbounded is one cache that every request shares and that never evicts: the most that any placement
// could reuse with any memory. The zero value is empty and ready; it is not safe for concurrent use.
type Unbounded struct {
	held map[uint64]struct{}
}

// Match is the number of leading blocks of chain that are held.
func (u *Unbounded) Match(chain []uint64) int {
	prefix := uint64(0)
	for i, content := range chain {
		prefix = tokens.PrefixNext(prefix, content)
		if _, ok := u.held[prefix]; !ok {
			return i
		}
	}
	return len(chain)
}

// Serve is Match, and holds all of chain from then on.
func (u *Unbounded) Serve(chain []uint64) (match int) {
	if u.held == nil {
		u.held = make(map[uint64]struct{})
	}
	before := len(u.held)
	prefix := uint64(0)
	for i, content := range chain {
		prefix = tokens.PrefixNext(prefix, content)
		u.held[prefix] = struct{}{}
		// A held block has all its ancestors held, so nothing matches behind the first new one.
		if len(u.held) == before {
			match = i + 1
		}
	}
	return match
}

// Blocks is the number of blocks held.
func (u *Unbounded) Blocks() int { return len(u.held) }

// Pooled is one cache as large as the memory of a whole fleet, which evicts the least recently used block:
// fed in the order of arrival it has the best reuse that a placement could have had with this memory. It
// is not safe for concurrent use.
//
// A request uses its blocks from the last to the first, as engines free them: the head of a prefix is the
// newest, so a block never stays behind its evicted ancestor. Of a prompt that is longer than the pool
// the first blocks stay.
type Pooled struct {
	capacity int
	// ring[0] is the anchor of a ring through all held blocks: the newest behind it, the oldest before it.
	ring []pooledBlock
	at   map[uint64]int32 // prefix hash -> place in ring
	keys []uint64         // of the chain being served
}

// pooledBlock is a held block between its neighbours in time.
type pooledBlock struct {
	prefix       uint64
	newer, older int32
}

// NewPooled is an empty pool of so many blocks; one of 0 holds nothing.
func NewPooled(blocks int) *Pooled {
	return &Pooled{capacity: max(blocks, 0), ring: make([]pooledBlock, 1), at: make(map[uint64]int32)}
}

// Serve is the number of leading blocks of chain that are held; then chain is the most recently used.
func (p *Pooled) Serve(chain []uint64) (match int) {
	chain = chain[:min(len(chain), p.capacity)]
	p.keys = p.keys[:0]
	prefix := uint64(0)
	for i, content := range chain {
		prefix = tokens.PrefixNext(prefix, content)
		p.keys = append(p.keys, prefix)
		if _, ok := p.at[prefix]; ok && match == i {
			match++
		}
	}
	for i := len(p.keys) - 1; i >= 0; i-- {
		p.use(p.keys[i])
	}
	return match
}

// Blocks is the number of blocks held.
func (p *Pooled) Blocks() int { return len(p.at) }

// use makes a block the newest one, in place of the oldest when it is new and the pool is full.
func (p *Pooled) use(prefix uint64) {
	i, held := p.at[prefix]
	switch {
	case held:
		p.unlink(i)
	case len(p.at) < p.capacity:
		i = int32(len(p.ring))
		p.ring = append(p.ring, pooledBlock{})
	default:
		i = p.ring[0].newer // the anchor stands before the oldest
		p.unlink(i)
		delete(p.at, p.ring[i].prefix)
	}
	newest := p.ring[0].older
	p.ring[i] = pooledBlock{prefix: prefix, newer: 0, older: newest}
	p.ring[newest].newer = i
	p.ring[0].older = i
	p.at[prefix] = i
}

func (p *Pooled) unlink(i int32) {
	b := p.ring[i]
	p.ring[b.newer].older, p.ring[b.older].newer = b.older, b.newer
}
