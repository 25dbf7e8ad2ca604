package crtc

import (
	"math/bits"

	"fleetdrill/gateway/index"
)

// fixedHolders is how many holders a lookup serves without allocating.
const fixedHolders = 1024

// Lookup implements index.Index. It locks, for reading, one node after the other, the child before its
// parent is let go. The scores of one lookup may be of different moments.
func (x *Index) Lookup(chain []uint64, dst index.Scores) index.Scores {
	length := len(x.holders.All())
	if cap(dst) < length {
		dst = make(index.Scores, length)
	}
	dst = dst[:length]
	clear(dst)
	var fixed [2 * fixedHolders / 64]uint64
	words, scratch := (length+63)/64, fixed[:]
	if 2*words > len(fixed) {
		scratch = make([]uint64, 2*words)
	}
	alive, lost := scratch[:words], scratch[words:2*words]
	n, position := x.root, 0
	n.mu.RLock()
	for position < len(chain) {
		c := n.child(chain[position])
		if c == nil {
			break
		}
		c.mu.RLock()
		n.mu.RUnlock()
		n = c
		m := n.match(chain[position:])
		through := n.pass(dst, alive, lost, position, m)
		position += m
		if !through || m < len(n.edge) {
			break
		}
	}
	n.mu.RUnlock()
	for w, left := range alive {
		for ; left != 0; left &= left - 1 {
			dst[w*64+bits.TrailingZeros64(left)] = uint32(position)
		}
	}
	return dst
}

// match counts the leading blocks of chain that the edge has.
func (n *node) match(chain []uint64) (m int) {
	for m < min(len(n.edge), len(chain)) && n.edge[m].content == chain[m] {
		m++
	}
	return m
}

// pass takes the alive holders through the first m blocks of an edge at position. At position 0 all holders
// are alive. Those that do not have them all get their score and leave.
func (n *node) pass(dst index.Scores, alive, lost []uint64, position, m int) (any bool) {
	for w := range alive {
		full := uint64(0)
		if w < len(n.full) {
			full = n.full[w]
		}
		if position == 0 {
			// Holders that came to be known after the lookup began have no place in dst.
			if rest := len(dst) - w*64; rest < 64 {
				full &= 1<<rest - 1
			}
			alive[w], lost[w] = full, ^full
			continue
		}
		lost[w] = alive[w] &^ full
		alive[w] &= full
		for left := lost[w]; left != 0; left &= left - 1 {
			dst[w*64+bits.TrailingZeros64(left)] = uint32(position)
		}
	}
	for _, c := range n.cuts {
		h := int(c.holder)
		if h >= len(dst) || lost[h/64]>>(h%64)&1 == 0 {
			continue
		}
		if int(c.length) >= m {
			alive[h/64] |= 1 << (h % 64)
		} else {
			dst[h] = uint32(position) + c.length
		}
	}
	for _, w := range alive {
		if w != 0 {
			return true
		}
	}
	return false
}
