package index

// Holder is one (worker, rank) whose cache can hold blocks. Ids are small and dense, because Scores is
// indexed by them; an id may be used again after Drop.
type Holder uint32

// MaxHolders is one more than the highest holder id. A store of a higher one is refused: ids are dense, so it
// comes from a mistake, and would cost memory for every id below it.
const MaxHolders = 1 << 15

// Membership is one engine hash held by one holder: Content is the block's content hash (namespace mixed
// into position 0), Position its place in its chain, from 0.
type Membership struct {
	Hash     uint64
	Position int
	Content  uint64
}

// StoreResult says what a store did, in blocks: Stored are new memberships, Duplicate were held at that
// very place, Moved were held elsewhere and now are here.
type StoreResult struct {
	Stored, Duplicate, Moved int
	// UnknownParent is set when the holder does not hold the parent; then nothing was stored.
	UnknownParent bool
	// Refused are blocks that were not stored because a limit of the index was reached: none of the store was.
	Refused int
	// Known lists the hashes behind Duplicate and Moved, in order; nil when there are none, which is the
	// common case and costs nothing.
	Known []uint64
}

// Scores holds, per Holder, how many leading blocks of the looked-up chain it has. Holders beyond its
// length have none.
type Scores []uint32

// Stats counts what an index holds now.
type Stats struct {
	Holders     int   // holders known, empty ones included
	Memberships int64 // engine hashes over all holders
	Nodes       int64 // distinct places (chain positions) that exist
	// Refused are blocks of stores that a limit kept out, Shed memberships that were given up to stay below
	// the bound or a limit, since the index was made.
	Refused, Shed int64
}

// Bounded is an Index that can be held below a size. It does not shrink by itself, because whoever counts
// above it must learn what goes: when Over says so, Cold names what is to go and Take takes it, holder by holder.
type Bounded interface {
	Index
	// SetMaxBytes sets the bound on Bytes, 0 for none. It is called before the first event.
	SetMaxBytes(n int64)
	// Bytes is what the index's live parts take.
	Bytes() int64
	// Over reports that Bytes is above the bound. It costs a few loads.
	Over() bool
	// Cold chooses the runs that nothing was stored in for the longest time, until they are an eighth of all.
	Cold() Cold
}

// Cold is a part of an index that is to go.
type Cold interface {
	// Take ends the memberships of h in it and returns their engine hashes, valid until the next call. It
	// counts as an event of h.
	Take(h Holder) (gone []uint64)
}

// Index is an exact prefix index. Implementations are safe for concurrent use; events of one holder must
// come from one goroutine at a time, because their order is their meaning.
type Index interface {
	// Store puts hashes, which name contents, under the block that parent names, or at the root without
	// one; both slices have one entry per block. A hash that is held elsewhere moves: the latest store
	// wins. An unknown parent is reported and nothing is stored.
	Store(h Holder, parent uint64, hasParent bool, hashes, contents []uint64) StoreResult
	// Remove ends the memberships that hashes name. It reorders hashes so that the removed ones come
	// first, in their order, and the unknown ones behind them.
	Remove(h Holder, hashes []uint64) (removed, unknown int)
	// Clear ends every membership of h; the holder stays known.
	Clear(h Holder)
	// Drop clears h and forgets it, so that its id can be used for another.
	Drop(h Holder)
	// Lookup fills dst, growing it if needed, with each holder's leading blocks of chain (content hashes,
	// namespace in the first). The result is as long as the highest holder id known + 1.
	Lookup(chain []uint64, dst Scores) Scores
	// Holds reports whether h holds the block that hash names.
	Holds(h Holder, hash uint64) bool
	// Count is the number of memberships of h: distinct engine hashes, not places.
	Count(h Holder) int
	// Stats counts the whole index.
	Stats() Stats
	// Each calls fn for every membership of h, in no order, until fn returns false. The index is locked
	// meanwhile: fn must not call it.
	Each(h Holder, fn func(Membership) bool)
}
