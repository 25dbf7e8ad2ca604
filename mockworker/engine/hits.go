package engine

// prefix is what a request finds in the caches when it is to be admitted.
type prefix struct {
	// tokens are found on the device, host blocks behind them in the host tier.
	tokens, host int
	// blocks are the device's, one list a group; null stands for what a window does not need.
	blocks [][]int32
}

// found is the tokens of both tiers.
func (e *Engine) found(p *prefix) int { return p.tokens + p.host*e.cfg.BlockSize }

// lookup finds the longest prefix of a request that every group can serve: groups that hold everything
// have all of it, and a window its last blocks. At least the last token is left to compute, because a pass
// over nothing yields no next token: an aligned prompt that is wholly cached computes its last block
// again. The result is valid until the next lookup.
func (e *Engine) lookup(q *request) *prefix {
	p := &e.prefix
	p.tokens, p.host = 0, 0
	if q.fresh {
		for i := range p.blocks {
			p.blocks[i] = p.blocks[i][:0]
		}
		return p
	}
	for i := range e.groups {
		p.blocks[i] = e.scan(p.blocks[i][:0], q, &e.groups[i])
	}
	if len(q.hashes) > 0 {
		p.tokens = e.longest(q, p)
	}
	for i := range e.groups {
		p.blocks[i] = e.trim(p.blocks[i], q, &e.groups[i], p.tokens)
	}
	if e.host != nil {
		p.host = e.hostRun(q, p.tokens/e.cfg.BlockSize)
	}
	return p
}

// scan appends the leading blocks of a request that a group has without a hole; a window needs none of
// them for sure.
func (e *Engine) scan(dst []int32, q *request, g *group) []int32 {
	if g.windowed() {
		return dst
	}
	for i := range e.fullBlocks(q, g, len(q.tokens)-1) {
		id := e.cached(q, g, i)
		if id == nullBlock {
			break
		}
		dst = append(dst, id)
	}
	return dst
}

// fullBlocks is how many blocks of a group the first n tokens of a request fill, as far as they are hashed.
func (e *Engine) fullBlocks(q *request, g *group, n int) int {
	return min(n/g.BlockSize, len(q.hashes)/g.scale)
}

// longest is how many leading tokens of a request every group accepts. What one accepts can be too long
// for another, so they are asked again until all agree.
func (e *Engine) longest(q *request, p *prefix) int {
	n := len(q.tokens) - 1
	for before := -1; n != before; {
		before = n
		for i := range e.groups {
			if g := &e.groups[i]; g.windowed() {
				n = e.windowRun(q, g, n)
			} else {
				n = e.aligned(min(n, len(p.blocks[i])*g.BlockSize))
			}
		}
	}
	return n
}

// windowRun is the longest multiple of the alignment within limit before which a group has a whole window,
// or everything from the beginning.
func (e *Engine) windowRun(q *request, g *group, limit int) int {
	run := 0
	for i := e.fullBlocks(q, g, limit) - 1; i >= 0; i-- {
		switch {
		case run == 0 && (i+1)*g.BlockSize%e.align != 0:
		case e.cached(q, g, i) == nullBlock:
			run = 0
		default:
			run++
			if run == g.tail {
				return (i + run) * g.BlockSize
			}
		}
	}
	return e.aligned(run * g.BlockSize)
}

func (e *Engine) aligned(n int) int { return n - n%e.align }

// cached is the device's copy of block i of a request.
func (e *Engine) cached(q *request, g *group, i int) int32 {
	return e.pool.first(&q.hashes[(i+1)*g.scale-1], g.index)
}

// trim makes a group's list as long as the prefix, with null where a window does not need a block.
func (e *Engine) trim(blocks []int32, q *request, g *group, tokens int) []int32 {
	n := tokens / g.BlockSize
	if !g.windowed() {
		return blocks[:n]
	}
	for i := range n {
		id := int32(nullBlock)
		if i >= n-g.tail {
			id = e.cached(q, g, i)
		}
		blocks = append(blocks, id)
	}
	return blocks
}
