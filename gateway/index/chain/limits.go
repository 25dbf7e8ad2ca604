package chain

import (
	"cmp"
	"slices"

	"fleetdrill/gateway/index"
)

// nameBytes is what a membership's slot takes on average: 16 bytes at a load of 2/5 to 3/5.
const nameBytes = 32

// runBytes is what a run takes besides its arrays.
const runBytes = 64

var _ index.Bounded = (*Index)(nil)

// storeNeed is at least the words that a store of n blocks may allocate: per block a run's array, bits, a
// bitmap or a larger partial table, and once a larger table of children, all with their rounding.
func (x *Index) storeNeed(n int) int64 {
	perBlock := 8 + int64(len(x.holders.All()))/32 + maxRun/32 + 6*int64(x.maxPartials)
	return int64(n)*perBlock + 6*int64(x.maxKids) + x.removalNeed()*reserve
}

// reserve is how many runs' removals are kept possible by refusing stores.
const reserve = 64

// removalNeed is at least the words that giving up blocks of one run may allocate.
func (x *Index) removalNeed() int64 {
	return maxRun/32 + int64(len(x.holders.All()))/16 + 6*int64(x.maxPartials) + 6*int64(x.maxKids)
}

// forget ends all that h has of a run, which needs no memory. It is the way out of a removal that there is no
// memory for: what is lost too is counted as shed.
func (x *Index) forget(h index.Holder, s *holder, id uint32) {
	x.open(id)
	r := x.runs.at(id)
	x.setLead(r, h, x.holding(r, h), 0)
	var names []uint64
	for _, slot := range s.places.slots {
		if slot.at != 0 && slot.at.run() == id {
			names = append(names, slot.hash)
			delete(s.twins, slot.at)
		}
	}
	for _, name := range names {
		s.places.take(name)
	}
	x.names.Add(-int64(len(names)))
	x.shed.Add(int64(len(names)))
	x.settle(id)
}

// SetMaxBytes implements index.Bounded.
func (x *Index) SetMaxBytes(n int64) { x.maxBytes = n }

// Bytes implements index.Bounded: words in use, run headers, and names at their average. Free lists and tables
// that are about to shrink come on top.
func (x *Index) Bytes() int64 {
	return x.arena.used.Load()*8 + x.runs.live.Load()*runBytes + x.names.Load()*nameBytes
}

// Over implements index.Bounded.
func (x *Index) Over() bool { return x.maxBytes > 0 && x.Bytes() > x.maxBytes }

// cold is a set of runs that were chosen at a time.
type cold struct {
	*Index
	runs  []uint64 // a bit per run
	since uint32
	names []uint64
	taken []place
}

// candidate is a run with its age, or that of the youngest run behind it, in stores. After 2^32 stores an age
// starts over, which makes a run look young for a while and nothing worse.
type candidate struct{ id, age, start uint32 }

// Cold implements index.Bounded. A run is as warm as the warmest one behind it: to take the beginning of a
// chain would make a hole in front of all the rest.
func (x *Index) Cold() index.Cold {
	x.mu.Lock()
	youth := make([]uint32, x.runs.next) // 2^32 - 1 - age
	var all []candidate
	for id := uint32(roots); id < x.runs.next; id++ {
		r := x.runs.at(id)
		if r.length() == 0 {
			continue
		}
		all = append(all, candidate{id: id, start: r.start})
		for up, y := id, ^(x.stores - r.stamp); up >= roots && youth[up] < y; up = x.runs.at(up).parent {
			youth[up] = y
		}
	}
	c := &cold{Index: x, runs: make([]uint64, len(youth)/64+1), since: x.stores}
	x.mu.Unlock()
	for i := range all {
		all[i].age = ^youth[all[i].id]
	}
	// Of equally cold runs those behind others first.
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.age, a.age), cmp.Compare(b.start, a.start))
	})
	goal := x.Bytes() - x.maxBytes*7/8
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, a := range all {
		if goal <= 0 {
			break
		}
		goal -= x.weight(x.runs.at(a.id))
		c.runs[a.id/64] |= 1 << (a.id % 64)
	}
	return c
}

// weight is what Bytes falls by when a run goes.
func (x *Index) weight(r *run) int64 {
	_, n, size := r.content.load()
	_, words, _ := r.cover.load()
	ref, entries, room := r.partial.load()
	names := int64(r.fulls) * int64(n)
	for _, e := range x.arena.view(ref, 2*room)[:entries] {
		names += int64(uint32(e))
	}
	return runBytes + 8*int64(size+words+2*room) + names*nameBytes
}

// Take implements index.Cold. A run that was stored in since it was chosen stays: it may be another's by now.
func (c *cold) Take(h index.Holder) (gone []uint64) {
	s := c.holders.Known(h)
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.names, c.taken = c.names[:0], c.taken[:0]
	for _, slot := range s.places.slots {
		if id := slot.at.run(); slot.at != 0 && int(id/64) < len(c.runs) && c.runs[id/64]>>(id%64)&1 != 0 {
			c.names = append(c.names, slot.hash)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range c.names {
		if at := s.places.get(name); c.Index.runs.at(at.run()).stamp-c.since-1 >= 1<<31 { // not later, around the end of 32 bits
			gone = append(gone, name)
			c.taken = append(c.taken, s.places.take(name))
		}
	}
	// Names came in the order of a hash table; what stands together is given up together.
	slices.Sort(c.taken)
	c.Index.names.Add(-int64(len(gone)))
	c.shed.Add(int64(len(gone)))
	s.places.shrink()
	c.unname(h, s, c.taken)
	c.close()
	return gone
}
