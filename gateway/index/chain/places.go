package chain

import (
	"math/bits"
	"unsafe"
)

// places maps the engine hashes of one holder to places: open addressing with linear probing. It grows by
// half, not by doubling, because it is most of what a membership costs: 16 bytes at a load of 2/5 to 3/5. More
// load made removals walk long clusters: 3/4 took a third of the throughput.
type places struct {
	slots []slot
	n     int
}

// slot is vacant when its place is 0.
type slot struct {
	hash uint64
	at   place
}

// home is where the probing for a hash begins: the high half of a product scales it to any table length.
func (p *places) home(hash uint64) int {
	hi, _ := bits.Mul64(hash*golden, uint64(len(p.slots)))
	return int(hi)
}

// find is the index of hash's slot, or of the vacant slot that it would take.
func (p *places) find(hash uint64) int { return p.probe(p.home(hash), hash) }

// probe is find from a slot on that lies between hash's home and where find leads.
func (p *places) probe(i int, hash uint64) int {
	slots := p.slots
	for slots[i].at != 0 && slots[i].hash != hash {
		if i++; i == len(slots) {
			i = 0
		}
	}
	return i
}

const (
	// batch is how many hashes are asked for at once, and ahead how far in front of the one at hand.
	batch = 16
	ahead = 32
)

// warm has the slots of the hashes that come ahead of the i-th brought to the cache, so that the misses of many
// happen side by side and beside the work on others. It is called for every i.
func (p *places) warm(hashes []uint64, i int) {
	if i%batch > 0 || p.n == 0 {
		return
	}
	from, to := i+ahead-batch, min(i+ahead, len(hashes))
	if i == 0 {
		from = 0
	}
	if from < to {
		prefetchSlots(&p.slots[0], len(p.slots), &hashes[from], to-from)
	}
}

// get is the place of hash, 0 if it has none.
func (p *places) get(hash uint64) place {
	if p.n == 0 {
		return 0
	}
	return p.slots[p.find(hash)].at
}

// put sets the place of hash and returns the one before, 0 if it had none. There is room: see reserve.
func (p *places) put(hash uint64, at place) place { return p.putFrom(p.home(hash), hash, at) }

// putFrom is put for who found earlier that the probe for hash ends at slot i or, if it was taken since, behind it.
func (p *places) putFrom(i int, hash uint64, at place) place {
	s := &p.slots[p.probe(i, hash)]
	old := s.at
	if old == 0 {
		s.hash = hash
		p.n++
	}
	s.at = at
	return old
}

// reserve makes room for n more hashes.
func (p *places) reserve(n int) {
	if (p.n+n)*5 <= len(p.slots)*3 {
		return
	}
	p.resize(max(16, len(p.slots)*3/2, (p.n+n)*2))
}

func (p *places) resize(slots int) {
	old := p.slots
	p.slots = make([]slot, slots)
	huge(unsafe.Pointer(unsafe.SliceData(p.slots)), uintptr(slots)*unsafe.Sizeof(slot{}))
	// The used slots are picked out first, a lot at a time and without a branch: whether a slot is used is a coin
	// toss, and guessing it costs more than copying it.
	var used [lot]slot
	for len(old) > 0 {
		n := 0
		for _, s := range old[:min(lot, len(old))] {
			used[n&(lot-1)] = s
			if s.at != 0 {
				n++
			}
		}
		old = old[min(lot, len(old)):]
		p.enter(used[:n])
	}
}

// lot is how many slots are moved at a time, a power of two.
const lot = 64

// enter fills vacant slots. All hashes differ, so the first vacant slot behind its home is a hash's place. They come
// in the order of their homes, nearly: what is written lies together.
func (p *places) enter(used []slot) {
	slots := p.slots
	for _, s := range used {
		i := p.home(s.hash)
		for slots[i].at != 0 {
			if i++; i == len(slots) {
				i = 0
			}
		}
		slots[i] = s
	}
}

// shrink gives memory back when three quarters of the hashes that there was room for are gone.
func (p *places) shrink() {
	if len(p.slots) > 64 && p.n*4 < len(p.slots) {
		p.resize(p.n * 2)
	}
}

// take removes hash and returns its place, 0 if it had none. Slots behind it shift back, so that hashes
// that came and went leave nothing.
func (p *places) take(hash uint64) place {
	if p.n == 0 {
		return 0
	}
	hole := p.find(hash)
	at := p.slots[hole].at
	if at == 0 {
		return 0
	}
	for i := hole + 1; ; i++ {
		if i == len(p.slots) {
			i = 0
		}
		s := p.slots[i]
		if s.at == 0 {
			break
		}
		// An entry may move back to the hole unless its probing begins behind the hole, where behind is
		// meant around the end of the table.
		home := p.home(s.hash)
		if stays := home > hole && home <= i; stays || i < hole && (home > hole || home <= i) {
			continue
		}
		p.slots[hole] = s
		hole = i
	}
	p.slots[hole] = slot{}
	p.n--
	return at
}
