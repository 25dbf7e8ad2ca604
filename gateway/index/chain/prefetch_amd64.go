package chain

// prefetchSlots asks for the home slots (see places.home) of count > 0 hashes in a table of n, and waits for
// none of them.
//
//go:noescape
func prefetchSlots(slots *slot, n int, hashes *uint64, count int)

// prefetchWord asks for the cache line of a word.
//
//go:noescape
func prefetchWord(word *uint64)
