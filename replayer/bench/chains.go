package bench

import (
	"math"
	"math/rand/v2"

	"fleetdrill/gateway/index"
	"fleetdrill/internal/tokens"
)

// chain is one chain of made-up blocks: content hashes, and the engine hashes that every engine gives them.
type chain struct{ contents, hashes []uint64 }

// extend appends n blocks that nobody else has.
func (c *chain) extend(draw *rand.Rand, n int) {
	for range n {
		c.add(draw.Uint64())
	}
}

// add appends one block.
func (c *chain) add(content uint64) {
	parent := uint64(1)
	if n := len(c.hashes); n > 0 {
		parent = c.hashes[n-1]
	}
	c.contents, c.hashes = append(c.contents, content), append(c.hashes, tokens.PrefixNext(parent, content))
}

// cut is a chain that begins with the first n blocks of c and shares no memory that is appended to.
func (c *chain) cut(n int) chain { return chain{c.contents[:n:n], c.hashes[:n:n]} }

// store announces the blocks of c from one on, in stores of at most step blocks, and reports how many.
func (c *chain) store(ix index.Index, h index.Holder, from, step int) (stores int) {
	for at := from; at < len(c.hashes); at += step {
		end := min(at+step, len(c.hashes))
		parent, has := uint64(0), at > 0
		if has {
			parent = c.hashes[at-1]
		}
		ix.Store(h, parent, has, c.hashes[at:end], c.contents[at:end])
		stores++
	}
	return stores
}

// logUniform draws from low to high, both inclusive, so that every octave is as likely.
func logUniform(draw *rand.Rand, low, high int) int {
	n := int(math.Exp(math.Log(float64(low)) + draw.Float64()*math.Log(float64(high+1)/float64(low))))
	return min(max(n, low), high)
}

// bounded says which figure of a made-up workload is out of its bounds.
func bounded(values ...[3]int) bool {
	for _, v := range values {
		if v[0] < v[1] || v[0] > v[2] {
			return false
		}
	}
	return true
}
