package chain

import (
	"slices"
	"sync/atomic"

	"fleetdrill/gateway/index"
)

// step is a piece of the way that stored blocks take: the blocks from..to of a run.
type step struct {
	run, from, to uint32
	// made is set when this event made these blocks; the holder has them already then.
	made bool
}

// Store implements index.Index.
//
// A store whose hashes are all new, nearly every one, changes what readers see from the far end of the
// chain to the near one: they see none of it until its first block counts, then all. Any other store may
// give up old places too, and keeps every run it touches open to the end.
func (x *Index) Store(h index.Holder, parent uint64, hasParent bool, hashes, contents []uint64) index.StoreResult {
	if h >= index.MaxHolders {
		x.refused.Add(int64(len(hashes)))
		return index.StoreResult{Refused: len(hashes)}
	}
	s := x.holders.Of(h)
	s.mu.Lock()
	defer s.mu.Unlock()
	var under place
	if hasParent {
		if under = s.places.get(parent); under == 0 {
			return index.StoreResult{UnknownParent: true}
		}
		prefetchRun(x.runs.at(under.run())) // for when the index is locked
	}
	if len(hashes) == 0 {
		return index.StoreResult{}
	}
	s.places.reserve(len(hashes))
	if len(hashes) <= maxRun && s.none(hashes) {
		return x.storeNew(h, s, under, hashes, contents)
	}
	return x.storeAny(h, s, under, hashes, contents)
}

// begin locks the index for a store of n blocks, if there is room for all that it may need.
func (x *Index) begin(n int) bool {
	x.mu.Lock()
	if x.stores++; x.arena.room(x.storeNeed(n)) {
		return true
	}
	x.mu.Unlock()
	x.refused.Add(int64(n))
	return false
}

// stamp marks the runs of a store's way as used now.
func (x *Index) stamp(steps []step) {
	for _, st := range steps {
		x.runs.at(st.run).stamp = x.stores
	}
}

// none reports that no hash has a place, and leaves in s.vacant the slots that they may take.
func (s *holder) none(hashes []uint64) bool {
	s.vacant = s.vacant[:0]
	for i, hash := range hashes {
		s.places.warm(hashes, i)
		at := s.places.find(hash)
		if s.places.slots[at].at != 0 {
			return false
		}
		s.vacant = append(s.vacant, uint32(at))
	}
	return true
}

// storeNew stores hashes that have no place yet. They get theirs after the index is unlocked: only this
// holder uses them.
func (x *Index) storeNew(h index.Holder, s *holder, under place, hashes, contents []uint64) (res index.StoreResult) {
	if !x.begin(len(hashes)) {
		return index.StoreResult{Refused: len(hashes)}
	}
	x.descend(h, s, under, contents, false)
	x.stamp(s.steps)
	x.close()
	for _, st := range slices.Backward(s.steps) {
		if !st.made {
			x.raise(h, s, st)
			x.close()
		}
	}
	x.mu.Unlock()
	s.taken = s.taken[:0]
	i := 0
	for _, st := range s.steps {
		for offset := st.from; offset < st.to; offset++ {
			if old := s.places.putFrom(int(s.vacant[i]), hashes[i], placeOf(st.run, offset)); old != 0 { // twice in one event
				res.Moved++
				res.Known = append(res.Known, hashes[i])
				s.taken = append(s.taken, old)
			}
			i++
		}
	}
	res.Stored = len(hashes) - res.Moved
	x.names.Add(int64(res.Stored))
	if res.Moved > 0 {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.unname(h, s, s.taken)
		x.close()
	}
	return res
}

// storeAny stores hashes of which some may have a place: there, which is a duplicate, or elsewhere, which
// is a move. Old places lose their names last, so that no branch dies under the way.
func (x *Index) storeAny(h index.Holder, s *holder, under place, hashes, contents []uint64) (res index.StoreResult) {
	if !x.begin(len(hashes)) {
		return index.StoreResult{Refused: len(hashes)}
	}
	defer x.mu.Unlock()
	taken := s.taken[:0]
	x.descend(h, s, under, contents, true)
	x.stamp(s.steps)
	i := 0
	for _, st := range s.steps {
		for offset := st.from; offset < st.to; offset++ {
			hash, at := hashes[i], placeOf(st.run, offset)
			i++
			old := s.places.put(hash, at)
			if old == 0 {
				res.Stored++
			} else {
				res.Known = append(res.Known, hash)
				if old == at {
					res.Duplicate++
					continue
				}
				res.Moved++
				taken = append(taken, old)
			}
			if !st.made {
				x.raise(h, s, step{run: st.run, from: offset, to: offset + 1})
			}
		}
	}
	s.taken = taken
	x.names.Add(int64(res.Stored))
	x.unname(h, s, taken)
	x.close()
	return res
}

// descend finds the places of contents under a place (0 for the root), makes those that do not exist,
// held by h, and leaves the way in s.steps. With hold the runs that get new blocks stay open.
func (x *Index) descend(h index.Holder, s *holder, under place, contents []uint64, hold bool) {
	steps := s.steps[:0]
	id, at := rootOf(contents[0]), uint32(0)
	if under != 0 {
		id, at = under.run(), under.offset()+1
	}
	for len(contents) > 0 {
		r := x.runs.at(id)
		ref, n, _ := r.content.load()
		if at < n {
			if m := match(x.arena.view(ref, n)[at:], contents); m > 0 {
				steps = append(steps, step{run: id, from: at, to: at + m})
				at += m
				contents = contents[m:]
				continue
			}
		}
		if next := x.child(r, at, contents[0]); next != 0 {
			id, at = next, 0
			continue
		}
		if hold {
			x.open(id)
		}
		k := uint32(min(len(contents), maxRun))
		if at == n && id >= roots && r.fulls == 1 && n+k <= maxRun && x.covers(r, h) {
			x.extend(id, contents[:k])
		} else {
			id, at = x.create(h, id, at, contents[:k]), 0
		}
		steps = append(steps, step{run: id, from: at, to: at + k, made: true})
		at += k
		contents = contents[k:]
	}
	s.steps = steps
}

// match counts the leading contents that equal an array's.
func match(words, contents []uint64) (m uint32) {
	n := min(len(words), len(contents))
	words, contents = words[:n], contents[:n]
	for i := range words {
		if atomic.LoadUint64(&words[i]) != contents[i] {
			return uint32(i)
		}
	}
	return uint32(n)
}

// raise gives h one more name for each block of a step. A block that it has already gets a twin.
func (x *Index) raise(h index.Holder, s *holder, st step) {
	r := x.runs.at(st.run)
	has := x.holding(r, h)
	if has.bitmap == 0 && st.from <= has.lead {
		for offset := st.from; offset < min(st.to, has.lead); offset++ {
			s.twin(placeOf(st.run, offset))
		}
		if st.to > has.lead {
			x.open(st.run)
			x.setLead(r, h, has, st.to)
		}
		return
	}
	x.open(st.run)
	has = x.scatter(r, h, has)
	for offset := st.from; offset < st.to; offset++ {
		if x.has(has, offset) {
			s.twin(placeOf(st.run, offset))
		} else {
			has = x.setBlock(r, h, has, offset, true)
		}
	}
	x.gather(r, h, has)
}

// twin counts one more name for a place that has one.
func (s *holder) twin(at place) {
	if s.twins == nil {
		s.twins = make(map[place]uint32)
	}
	s.twins[at]++
}

// unname takes one name off each place, in any order, and with the last one the block. Places of one run
// that stand together go in one step.
func (x *Index) unname(h index.Holder, s *holder, taken []place) {
	if len(s.twins) > 0 {
		taken = s.single(taken)
	}
	for len(taken) > 0 {
		n := 1
		for n < len(taken) && taken[n].run() == taken[0].run() {
			n++
		}
		id := taken[0].run()
		if x.arena.room(x.removalNeed()) {
			x.giveUp(h, taken[:n])
			taken = taken[n:]
			continue
		}
		x.forget(h, s, id)
		taken = slices.DeleteFunc(taken, func(at place) bool { return at.run() == id })
	}
}

// single takes one name off each place that has twins and returns the others, in place.
func (s *holder) single(taken []place) []place {
	out := taken[:0]
	for _, at := range taken {
		switch n := s.twins[at]; n {
		case 0:
			out = append(out, at)
		case 1:
			delete(s.twins, at)
		default:
			s.twins[at] = n - 1
		}
	}
	return out
}

// giveUp ends the holding of blocks of one run. From the last to the first, an eviction that reaches the
// holder's end only lowers its cutoff.
func (x *Index) giveUp(h index.Holder, blocks []place) {
	id := blocks[0].run()
	r := x.runs.at(id)
	x.open(id)
	slices.Sort(blocks)
	has := x.holding(r, h)
	lead := has.lead
	i := len(blocks)
	if has.bitmap == 0 {
		for ; i > 0 && blocks[i-1].offset() == lead-1; i-- {
			lead--
		}
	}
	if i == 0 {
		x.setLead(r, h, has, lead)
	} else {
		has = x.scatter(r, h, has)
		for _, at := range blocks {
			has = x.setBlock(r, h, has, at.offset(), false)
		}
		x.gather(r, h, has)
	}
	x.settle(id)
}
