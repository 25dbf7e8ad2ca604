package oracle

import (
	"math/bits"

	"fleetdrill/internal/tokens"
)

// Tokens is how many of a prompt's tokens a match of so many leading blocks reuses: whole blocks, and never
// the whole prompt, because an engine always computes the last token. What a gateway promises, what an
// engine reports and what an oracle allows all have this cap.
func Tokens(match, blockSize, prompt int) int {
	if prompt <= 0 {
		return 0
	}
	return min(match*blockSize, (prompt-1)/blockSize*blockSize)
}

// BestHolder is every block resident on a fleet, as its engines announced them: at any instant it says how
// much of a prompt each holder has, and so the most that a placement at that instant could have reused.
// Holders are numbered from 0. It is not safe for concurrent use.
//
// Blocks are held under their whole prefix in one table for the fleet, each with the set of its holders, so
// a lookup costs one step per block however many holders there are.
type BestHolder struct {
	words   int                 // of 64 holders
	holders []map[uint64]copied // per holder: engine hash -> block
	at      map[uint64]int      // prefix hash -> place in sets, in units of words
	sets    []uint64            // holder sets, words each
	free    []int               // places in sets that no prefix uses
	live    []uint64            // scratch of Depths: the holders of every block so far
}

// copied is a block that a holder has, once or more.
type copied struct {
	prefix uint64
	copies int32
}

// NewBestHolder is an empty fleet of so many holders.
func NewBestHolder(holders int) *BestHolder {
	words := (holders + 63) / 64
	b := &BestHolder{words: words, holders: make([]map[uint64]copied, holders), at: map[uint64]int{}, live: make([]uint64, words)}
	for i := range b.holders {
		b.holders[i] = map[uint64]copied{}
	}
	return b
}

// Store puts one block under parent (hasParent false: at the root of a chain). content is the block's
// content hash, with its namespace mixed in at the root (tokens.AppendChain). A block that is there already
// has one copy more. It returns false, and stores nothing, when the holder does not have the parent.
func (b *BestHolder) Store(holder int, hash, parent uint64, hasParent bool, content uint64) bool {
	blocks := b.holders[holder]
	if c, ok := blocks[hash]; ok {
		c.copies++
		blocks[hash] = c
		return true
	}
	prefix := uint64(0)
	if hasParent {
		p, ok := blocks[parent]
		if !ok {
			return false
		}
		prefix = p.prefix
	}
	prefix = tokens.PrefixNext(prefix, content)
	blocks[hash] = copied{prefix, 1}
	b.set(prefix)[holder/64] |= 1 << (holder % 64)
	return true
}

// Remove takes one copy of a block; a hash that the holder does not have is left alone.
func (b *BestHolder) Remove(holder int, hash uint64) {
	c, ok := b.holders[holder][hash]
	if !ok {
		return
	}
	if c.copies--; c.copies > 0 {
		b.holders[holder][hash] = c
		return
	}
	delete(b.holders[holder], hash)
	b.unset(holder, c.prefix)
}

// Clear takes everything of a holder.
func (b *BestHolder) Clear(holder int) {
	for _, c := range b.holders[holder] {
		b.unset(holder, c.prefix)
	}
	clear(b.holders[holder])
}

// Blocks is the number of different blocks that a holder has.
func (b *BestHolder) Blocks(holder int) int { return len(b.holders[holder]) }

// Depths writes into dst, which has a place per holder, how many leading blocks of chain each holder has, and
// returns the greatest.
func (b *BestHolder) Depths(chain []uint64, dst []int) (best int) {
	clear(dst)
	for w := range b.live {
		b.live[w] = ^uint64(0)
	}
	prefix := uint64(0)
	for _, content := range chain {
		prefix = tokens.PrefixNext(prefix, content)
		at, held := b.at[prefix]
		if !held || !b.narrow(b.sets[at:at+b.words], best, dst) {
			break
		}
		best++
	}
	if best > 0 {
		for w, set := range b.live {
			write(dst, w, set, best)
		}
	}
	return best
}

// narrow keeps those live holders that are in set, and says whether any is left. Those that drop out had
// depth blocks.
func (b *BestHolder) narrow(set []uint64, depth int, dst []int) bool {
	left := uint64(0)
	for w := range b.live {
		left |= b.live[w] & set[w]
	}
	if left == 0 {
		return false
	}
	for w := range b.live {
		if depth > 0 {
			write(dst, w, b.live[w]&^set[w], depth)
		}
		b.live[w] &= set[w]
	}
	return true
}

// write gives every holder of a word of a set its depth.
func write(dst []int, word int, set uint64, depth int) {
	for ; set != 0; set &= set - 1 {
		dst[word*64+bits.TrailingZeros64(set)] = depth
	}
}

// set is the holder set of a prefix, a new one when there is none.
func (b *BestHolder) set(prefix uint64) []uint64 {
	at, ok := b.at[prefix]
	if !ok {
		if n := len(b.free); n > 0 {
			at, b.free = b.free[n-1], b.free[:n-1]
		} else {
			at = len(b.sets)
			b.sets = append(b.sets, make([]uint64, b.words)...)
		}
		b.at[prefix] = at
	}
	return b.sets[at : at+b.words]
}

// unset takes a holder out of a prefix's set, and gives an empty set back.
func (b *BestHolder) unset(holder int, prefix uint64) {
	at := b.at[prefix]
	set := b.sets[at : at+b.words]
	set[holder/64] &^= 1 << (holder % 64)
	for _, w := range set {
		if w != 0 {
			return
		}
	}
	delete(b.at, prefix)
	b.free = append(b.free, at)
}
