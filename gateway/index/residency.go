package index

import (
	"maps"
	"sync"

	"fleetdrill/internal/tokens"
)

// maxCopies caps the copies counted per (holder, hash). One engine mode announces a hit chain anew on
// every hit without ever removing it, so an uncapped count would keep such blocks for ever.
const maxCopies = 8

// Residency counts physical copies above an Index. Engines store the same block more than once (a fully
// cached prompt recomputes its last block into a second physical block of the same hash) and announce
// one removal per copy, so a removal takes one copy and the membership ends with the last.
//
// It also keeps, per holder, the digest of its distinct hashes, which an engine keeps too. Safe for
// concurrent use under the same rule as Index: the events of one holder come from one goroutine.
type Residency struct {
	index Index
	// bounded is index if it can be held below a size. shedding is held by whoever makes it smaller.
	bounded  Bounded
	shedding sync.Mutex

	// mu guards the map; an entry's own fields are guarded by its own lock, so that holders do not wait
	// for each other.
	mu      sync.RWMutex
	holders map[Holder]*resident
}

// resident is what Residency knows of one holder.
type resident struct {
	mu     sync.Mutex
	digest uint64
	// extra counts copies beyond the first; a hash with one copy has no entry, so that only the rare
	// duplicate costs memory.
	extra map[uint64]uint8
	// shed counts memberships given up to stay below the bound.
	shed int64
}

// NewResidency counts copies above ix, which nobody else may change.
func NewResidency(ix Index) *Residency {
	r := &Residency{index: ix, holders: make(map[Holder]*resident)}
	r.bounded, _ = ix.(Bounded)
	return r
}

// Index is the index below, for lookups.
func (r *Residency) Index() Index { return r.index }

// Store is Index.Store, with one copy counted for every block that was held already. If that puts the index
// above its bound, it gives up cold blocks of any holder before it returns; see Shed.
func (r *Residency) Store(h Holder, parent uint64, hasParent bool, hashes, contents []uint64) StoreResult {
	if h >= MaxHolders {
		return r.index.Store(h, parent, hasParent, hashes, contents) // refused, and counted there
	}
	res := r.store(h, parent, hasParent, hashes, contents)
	if r.bounded != nil && r.bounded.Over() {
		r.shed()
	}
	return res
}

func (r *Residency) store(h Holder, parent uint64, hasParent bool, hashes, contents []uint64) StoreResult {
	s := r.of(h)
	s.mu.Lock()
	defer s.mu.Unlock()
	res := r.index.Store(h, parent, hasParent, hashes, contents)
	if res.UnknownParent || res.Refused > 0 {
		return res
	}
	for _, hash := range hashes {
		s.digest += tokens.DigestTerm(hash)
	}
	for _, hash := range res.Known {
		s.digest -= tokens.DigestTerm(hash)
		if s.extra[hash]+1 < maxCopies {
			s.extra[hash]++
		}
	}
	return res
}

// Remove takes one copy of each hash. removed counts the memberships that ended with their last copy,
// unknown the hashes that the holder did not have. It overwrites hashes: first those of ended memberships,
// then the unknown ones, then nothing of meaning.
func (r *Residency) Remove(h Holder, hashes []uint64) (removed, unknown int) {
	s := r.of(h)
	s.mu.Lock()
	defer s.mu.Unlock()
	last := hashes
	if len(s.extra) > 0 {
		last = s.takeCopies(hashes)
	}
	removed, unknown = r.index.Remove(h, last)
	for _, hash := range last[:removed] {
		s.digest -= tokens.DigestTerm(hash)
	}
	return removed, unknown
}

// takeCopies takes one extra copy of each hash that has one and returns the others, in place.
func (s *resident) takeCopies(hashes []uint64) []uint64 {
	last := hashes[:0]
	for _, hash := range hashes {
		switch n := s.extra[hash]; n {
		case 0:
			last = append(last, hash)
		case 1:
			delete(s.extra, hash)
		default:
			s.extra[hash] = n - 1
		}
	}
	return last
}

// Clear ends every membership of h, whatever its copies.
func (r *Residency) Clear(h Holder) {
	s := r.of(h)
	s.mu.Lock()
	defer s.mu.Unlock()
	r.index.Clear(h)
	s.digest = 0
	clear(s.extra)
}

// Drop clears h and forgets it. No event of h may follow before the id is given to another holder.
func (r *Residency) Drop(h Holder) {
	r.mu.Lock()
	delete(r.holders, h)
	r.mu.Unlock()
	r.index.Drop(h)
}

// Digest is the sum of tokens.DigestTerm over the distinct hashes of h: 0 for an empty or unknown holder.
func (r *Residency) Digest(h Holder) uint64 {
	r.mu.RLock()
	s := r.holders[h]
	r.mu.RUnlock()
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.digest
}

// Shed is how many memberships of h were given up to stay below the bound: what a comparison with the engine
// finds missing, less what the engine has removed since.
func (r *Residency) Shed(h Holder) int64 {
	r.mu.RLock()
	s := r.holders[h]
	r.mu.RUnlock()
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shed
}

// shed gives up the coldest blocks. A holder has them no longer, just as if its engine had removed them: its
// scores stay exact for what is left. Only one caller does it at a time; others go on.
func (r *Residency) shed() {
	if !r.shedding.TryLock() {
		return
	}
	defer r.shedding.Unlock()
	cold := r.bounded.Cold()
	for h := range r.known() {
		r.take(cold, h)
	}
}

func (r *Residency) known() map[Holder]*resident {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return maps.Clone(r.holders)
}

// take ends h's memberships in cold. The map stays locked so that h is not another's meanwhile.
func (r *Residency) take(cold Cold, h Holder) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	s := r.holders[h]
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, hash := range cold.Take(h) {
		s.digest -= tokens.DigestTerm(hash)
		delete(s.extra, hash)
		s.shed++
	}
}

// of returns the record of h, made on first use.
func (r *Residency) of(h Holder) *resident {
	r.mu.RLock()
	s := r.holders[h]
	r.mu.RUnlock()
	if s != nil {
		return s
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if s = r.holders[h]; s == nil {
		s = &resident{extra: make(map[uint64]uint8)}
		r.holders[h] = s
	}
	return s
}
