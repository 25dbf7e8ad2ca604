package oracle

import (
	"math/bits"

	"fleetdrill/internal/tokens"
)

// prefixSets says who holds each prefix: a set of holders as bits.
type prefixSets struct {
	words int            // of 64 holders
	at    map[uint64]int // prefix hash -> where its set begins
	sets  []uint64       // words each
	free  []int          // sets that no prefix uses
}

func newPrefixSets(holders int) prefixSets {
	return prefixSets{words: (holders + 63) / 64, at: map[uint64]int{}}
}

// add puts a holder into a prefix's set.
func (p *prefixSets) add(holder int, prefix uint64) {
	at, ok := p.at[prefix]
	switch n := len(p.free); {
	case ok:
	case n > 0:
		at, p.free = p.free[n-1], p.free[:n-1]
	default:
		at = len(p.sets)
		p.sets = append(p.sets, make([]uint64, p.words)...)
	}
	p.at[prefix] = at
	p.sets[at+holder/64] |= 1 << (holder % 64)
}

// take takes a holder out of a prefix's set; an empty set is given back.
func (p *prefixSets) take(holder int, prefix uint64) {
	at := p.at[prefix]
	set := p.sets[at : at+p.words]
	set[holder/64] &^= 1 << (holder % 64)
	for _, w := range set {
		if w != 0 {
			return
		}
	}
	delete(p.at, prefix)
	p.free = append(p.free, at)
}

// depths writes into dst how many leading blocks of chain each holder has, and returns the greatest. live is
// scratch of one bit per holder.
func (p *prefixSets) depths(chain []uint64, live []uint64, dst []int) (best int) {
	clear(dst)
	for w := range live {
		live[w] = ^uint64(0)
	}
	prefix := uint64(0)
	for _, content := range chain {
		prefix = tokens.PrefixNext(prefix, content)
		at, held := p.at[prefix]
		if !held || !narrow(live, p.sets[at:at+p.words], best, dst) {
			break
		}
		best++
	}
	if best > 0 {
		for w, set := range live {
			write(dst, w, set, best)
		}
	}
	return best
}

// narrow keeps the live holders that are in set, and says whether any is left; then those that drop out had
// depth blocks.
func narrow(live, set []uint64, depth int, dst []int) bool {
	left := uint64(0)
	for w := range live {
		left |= live[w] & set[w]
	}
	if left == 0 {
		return false
	}
	for w := range live {
		if depth > 0 { // at depth 0 the bits behind the last holder are live too
			write(dst, w, live[w]&^set[w], depth)
		}
		live[w] &= set[w]
	}
	return true
}

// write gives every holder of a word of a set its depth.
func write(dst []int, word int, set uint64, depth int) {
	for ; set != 0; set &= set - 1 {
		dst[word*64+bits.TrailingZeros64(set)] = depth
	}
}
