package oracle

import "fleetdrill/internal/tokens"

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
	folds []fold
	sets  prefixSets
	live  []uint64 // scratch of Depths: the holders of every block so far
}

// NewBestHolder is an empty fleet of so many holders.
func NewBestHolder(holders int) *BestHolder {
	b := &BestHolder{folds: make([]fold, holders), sets: newPrefixSets(holders)}
	b.live = make([]uint64, b.sets.words)
	for i := range b.folds {
		b.folds[i] = fold{}
	}
	return b
}

// Store puts one block under parent (hasParent false: at the root of a chain). content is the block's
// content hash, with its namespace mixed in at the root (tokens.AppendChain). A block that is there already
// has one copy more. It returns false, and stores nothing, when the holder does not have the parent.
func (b *BestHolder) Store(holder int, hash, parent uint64, hasParent bool, content uint64) bool {
	prefix, gained, ok := b.folds[holder].store(hash, parent, hasParent, content)
	if gained {
		b.sets.add(holder, prefix)
	}
	return ok
}

// Remove takes one copy of a block; a hash that the holder does not have is left alone.
func (b *BestHolder) Remove(holder int, hash uint64) {
	if prefix, lost := b.folds[holder].remove(hash); lost {
		b.sets.take(holder, prefix)
	}
}

// Clear takes everything of a holder.
func (b *BestHolder) Clear(holder int) {
	for _, c := range b.folds[holder] {
		b.sets.take(holder, c.prefix)
	}
	clear(b.folds[holder])
}

// Blocks is the number of different blocks that a holder has.
func (b *BestHolder) Blocks(holder int) int { return len(b.folds[holder]) }

// Depths writes into dst, which has a place per holder, how many leading blocks of chain each holder has, and
// returns the greatest.
func (b *BestHolder) Depths(chain []uint64, dst []int) (best int) {
	return b.sets.depths(chain, b.live, dst)
}

// fold is the blocks of one holder by engine hash. An engine names a chain by one hash, so no two hashes
// stand for one prefix.
type fold map[uint64]copied

// copied is a block that a holder has, once or more, under its prefix hash.
type copied struct {
	prefix uint64
	copies int32
}

// store says under which prefix the block is, whether the holder did not have it before, and false when its
// parent is missing.
func (f fold) store(hash, parent uint64, hasParent bool, content uint64) (prefix uint64, gained, ok bool) {
	if hasParent {
		p, held := f[parent]
		if !held {
			return 0, false, false
		}
		prefix = p.prefix
	}
	if c, held := f[hash]; held {
		c.copies++
		f[hash] = c
		return c.prefix, false, true
	}
	prefix = tokens.PrefixNext(prefix, content)
	f[hash] = copied{prefix, 1}
	return prefix, true, true
}

// remove says under which prefix the block was and whether that was the last copy.
func (f fold) remove(hash uint64) (prefix uint64, lost bool) {
	c, held := f[hash]
	if !held {
		return 0, false
	}
	if c.copies--; c.copies > 0 {
		f[hash] = c
		return 0, false
	}
	delete(f, hash)
	return c.prefix, true
}
