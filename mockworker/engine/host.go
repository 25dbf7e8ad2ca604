package engine

import (
	"slices"

	"fleetdrill/mockworker/blockhash"
)

// MediumCPU is the host tier in events.
const MediumCPU = "CPU"

// hostTier keeps in host memory what the device evicts, the least recently used leaving first. Its pool is
// only a table and a queue: nobody holds a block, and a hash has one copy.
type hostTier struct {
	pool *pool
	// events follow those of the device in the same batch, as a connector's do.
	events []Event
	hashes []blockhash.Digest // what events name
	tokens []uint32           // what they tell
	// origins are what a store has to tell of each device block, with events that describe themselves.
	origins []origin
	block   int // tokens of one
}

// origin is what besides its hash made a block.
type origin struct {
	parent blockhash.Digest
	tokens []uint32
	lora   string
	loraID *int
	salt   string
	key    ExtraKey
}

func newHostTier(c Config) *hostTier {
	if c.HostBlocks == 0 {
		return nil
	}
	h := &hostTier{pool: newPool(c.HostBlocks+1, 1), block: c.BlockSize}
	if c.HostDescribed {
		h.origins = make([]origin, c.NumBlocks)
	}
	return h
}

// begin starts a new list of events.
func (h *hostTier) begin() {
	h.events, h.hashes, h.tokens = h.events[:0], h.hashes[:0], h.tokens[:0]
}

// hostRun counts the blocks of a request from n on that the host has without a hole.
func (e *Engine) hostRun(q *request, n int) int {
	from := n
	for most := (len(q.tokens) - 1) / e.cfg.BlockSize; n < min(most, len(q.hashes)); n++ {
		if e.host.pool.first(&q.hashes[n], 0) == nullBlock {
			break
		}
	}
	return n - from
}

// use makes host blocks of a request the ones used last: what their load throws out of the device must not
// push them out first.
func (h *hostTier) use(hashes []blockhash.Digest) {
	for i := range hashes {
		if id := h.pool.first(&hashes[i], 0); id != nullBlock {
			h.pool.free.remove(id)
			h.pool.free.pushBack(id)
		}
	}
}

// demote takes in what device block id held, unless the host has it already.
func (h *hostTier) demote(id int32, was *evicted) {
	if at := h.pool.first(&was.hash, 0); at != nullBlock {
		h.pool.free.remove(at)
		h.pool.free.pushBack(at)
		return
	}
	at, gone, wasCached := h.pool.take()
	if wasCached {
		h.tell(Removed, gone.hash)
	}
	h.pool.store(at, was.hash, 0, was.parent, was.content, int(was.pos))
	h.pool.blocks[at].state--
	h.pool.free.pushBack(at)
	if h.origins != nil {
		h.describe(&h.origins[id], was)
		return
	}
	h.tell(Stored, was.hash)
}

// tell adds a hash to the last event if it says the same, as a connector announces a whole transfer at once,
// and else begins another one.
func (h *hostTier) tell(kind EventKind, hash blockhash.Digest) {
	h.hashes = append(h.hashes, hash)
	n := len(h.hashes)
	if last := len(h.events) - 1; last >= 0 && h.events[last].Kind == kind {
		from := n - 1 - len(h.events[last].Hashes)
		h.events[last].Hashes = h.hashes[from:n:n]
		return
	}
	h.events = append(h.events, Event{Kind: kind, Hashes: h.hashes[n-1 : n : n], Medium: MediumCPU, Group: NoGroup})
}

// describe announces a block with everything that its device store told.
func (h *hostTier) describe(o *origin, was *evicted) {
	h.hashes = append(h.hashes, o.parent, was.hash)
	n, from := len(h.hashes), len(h.tokens)
	h.tokens = append(h.tokens, o.tokens...)
	ev := Event{
		Kind: Stored, Hashes: h.hashes[n-1 : n : n], Tokens: h.tokens[from:len(h.tokens):len(h.tokens)], BlockSize: h.block,
		LoRAID: o.loraID, LoRAName: o.lora, CacheSalt: o.salt, ExtraKeys: []ExtraKey{o.key}, Medium: MediumCPU, Group: NoGroup,
	}
	if was.pos > 0 {
		ev.Parent = &h.hashes[n-2]
	}
	h.events = append(h.events, ev)
}

// remember notes what a device block that enters the cache could have to tell one day.
func (h *hostTier) remember(id int32, q *request, n int, key ExtraKey) {
	if h.origins == nil {
		return
	}
	o := origin{tokens: slices.Clone(q.tokens[n*h.block : (n+1)*h.block]), lora: q.lora, loraID: q.loraID, salt: q.salt, key: key}
	if n > 0 {
		o.parent = q.hashes[n-1]
	}
	h.origins[id] = o
}

// clear empties the tier.
func (h *hostTier) clear() {
	h.begin()
	h.pool.clear()
}

// each yields every block of the tier, until yield returns false.
func (h *hostTier) each(yield func(Block) bool) {
	h.pool.each(func(id int32) bool {
		b := &h.pool.blocks[id]
		return yield(Block{
			Hash: h.pool.hashOf(id), Parent: b.parent, Position: int(b.pos), Content: b.content, Copies: 1,
			Medium: MediumCPU, Group: NoGroup,
		})
	})
}
