package chain

import (
	"slices"
	"sync"
	"sync/atomic"

	"fleetdrill/gateway/index"
)

// Index is the chain index. Make it with New.
type Index struct {
	arena *arena
	runs  *runs
	nodes atomic.Int64
	// names counts memberships; refused and shed are what Stats tells; maxBytes is the bound, 0 for none.
	names, refused, shed atomic.Int64
	maxBytes             int64

	// mu is held by whoever changes runs or the arena. A holder's own lock is taken first.
	mu sync.Mutex
	// opened lists the runs whose version is odd, under mu.
	opened []uint32
	// stores counts stores, to tell cold runs; maxKids and maxPartials are the most children and partial
	// entries that a run ever had, to tell what an event may need. All under mu.
	stores               uint32
	maxKids, maxPartials uint32

	holders index.Holders[holder]
}

// holder is one holder's side: which engine hash names which place.
type holder struct {
	mu     sync.Mutex
	places places
	// twins counts, per place, the names beyond the first; a place with one name has no entry.
	twins map[place]uint32
	// taken, vacant and steps are scratch: the places that an event takes names from, the slots that the names of
	// a store will take, and its way.
	taken  []place
	vacant []uint32
	steps  []step
}

var _ index.Index = (*Index)(nil)

// New returns an empty index.
func New() *Index {
	return &Index{arena: newArena(), runs: newRuns()}
}

// Remove implements index.Index.
func (x *Index) Remove(h index.Holder, hashes []uint64) (removed, unknown int) {
	s := x.holders.Known(h)
	if s == nil {
		return 0, len(hashes)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	taken, last := s.taken[:0], uint32(0)
	for i, hash := range hashes {
		s.places.warm(hashes, i)
		at := s.places.take(hash)
		if at == 0 {
			continue
		}
		if at.run() != last {
			last = at.run()
			prefetchRun(x.runs.at(last)) // for when the index is locked
		}
		hashes[removed], hashes[i] = hash, hashes[removed]
		removed++
		taken = append(taken, at)
	}
	s.taken = taken
	x.names.Add(-int64(removed))
	s.places.shrink()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.unname(h, s, taken)
	x.close()
	return removed, len(hashes) - removed
}

// Clear implements index.Index. Runs go in the order of their positions, each in a step of its own: a
// reader sees all of the holder's chain or, once its first block is gone, none of it, and never waits for
// the whole of a large holder.
func (x *Index) Clear(h index.Holder) {
	s := x.holders.Known(h)
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range x.runsOf(s) {
		x.mu.Lock()
		x.open(id)
		r := x.runs.at(id)
		x.setLead(r, h, x.holding(r, h), 0)
		x.settle(id)
		x.close()
		x.mu.Unlock()
	}
	x.names.Add(-int64(s.places.n))
	s.places = places{}
	s.twins = nil
}

// runsOf lists the runs that s has blocks of, by position. A bit per run that exists sorts out the
// repetitions, because a holder has far more blocks than runs.
func (x *Index) runsOf(s *holder) (ids []uint32) {
	x.mu.Lock()
	seen := make([]uint64, x.runs.next/64+1)
	x.mu.Unlock()
	for _, slot := range s.places.slots {
		id := slot.at.run()
		if word, bit := &seen[id/64], uint64(1)<<(id%64); slot.at != 0 && *word&bit == 0 {
			*word |= bit
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b uint32) int { return int(x.runs.at(a).start) - int(x.runs.at(b).start) })
	return ids
}

// Drop implements index.Index.
func (x *Index) Drop(h index.Holder) {
	x.Clear(h)
	x.holders.Forget(h)
}

// Holds implements index.Index.
func (x *Index) Holds(h index.Holder, hash uint64) bool {
	s := x.holders.Known(h)
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.places.get(hash) != 0
}

// Count implements index.Index.
func (x *Index) Count(h index.Holder) int {
	s := x.holders.Known(h)
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.places.n
}

// Stats implements index.Index.
func (x *Index) Stats() index.Stats {
	out := index.Stats{Nodes: x.nodes.Load(), Refused: x.refused.Load(), Shed: x.shed.Load()}
	for h, s := range x.holders.All() {
		if s != nil {
			out.Holders++
			out.Memberships += int64(x.Count(index.Holder(h)))
		}
	}
	return out
}

// Each implements index.Index. Only this holder is locked.
func (x *Index) Each(h index.Holder, fn func(index.Membership) bool) {
	s := x.holders.Known(h)
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, slot := range s.places.slots {
		if slot.at == 0 {
			continue
		}
		r := x.runs.at(slot.at.run())
		m := index.Membership{Hash: slot.hash, Position: int(r.start + slot.at.offset()), Content: x.contentAt(r, slot.at.offset())}
		if !fn(m) {
			return
		}
	}
}

// contentAt reads one content hash of a run that the caller's holder keeps alive, but that another may be
// moving to a larger array.
func (x *Index) contentAt(r *run, offset uint32) uint64 {
	version := r.version.Load()
	ref, n, _ := r.content.load()
	if version&1 == 0 {
		if content := atomic.LoadUint64(&x.arena.view(ref, n)[offset]); r.version.Load() == version {
			return content
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	ref, n, _ = r.content.load()
	return atomic.LoadUint64(&x.arena.view(ref, n)[offset])
}
