package index

import (
	"maps"
	"slices"
	"sync"

	"fleetdrill/internal/tokens"
)

// Tier is where a copy of a block is. A block that any tier has can be served, so tiers share a membership.
type Tier uint8

// The tiers that are indexed, and Kept, which is no place: a copy there keeps a block's membership over a moment in
// which no tier has it, and nothing else tells of it.
const (
	Device Tier = iota
	Host
	Kept
	tiers
)

// MaxCopies caps the copies counted per (holder, tier, hash). One engine mode announces a hit chain anew on
// every hit without ever removing it, so an uncapped count would keep such blocks for ever.
const MaxCopies = 8

// Residency counts physical copies above an Index. Engines store the same block more than once (a fully
// cached prompt recomputes its last block into a second physical block of the same hash, an offload keeps one
// on the host) and announce one removal per copy, so a removal takes one copy and the membership ends with the last.
//
// It also keeps, per holder and tier, the count and the digest of the distinct hashes there, which an engine
// keeps too. Safe for concurrent use under the same rule as Index: the events of one holder come from one
// goroutine.
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
	mu sync.Mutex
	// digest and blocks are of the distinct hashes with a copy in the tier.
	digest [tiers]uint64
	blocks [tiers]int
	// copies of hashes that are not just once on the device, per tier. The usual case has no entry, so that
	// only duplicates and host copies cost memory.
	copies map[uint64]counts
	// shed counts memberships given up to stay below the bound.
	shed int64
}

// counts are the copies of one hash; never all zero. A held hash without an entry has one on the device.
type counts [tiers]uint8

// NewResidency counts copies above ix, which nobody else may change.
func NewResidency(ix Index) *Residency {
	r := &Residency{index: ix, holders: make(map[Holder]*resident)}
	r.bounded, _ = ix.(Bounded)
	return r
}

// Index is the index below, for lookups.
func (r *Residency) Index() Index { return r.index }

// Store is StoreTier on the device.
func (r *Residency) Store(h Holder, parent uint64, hasParent bool, hashes, contents []uint64) StoreResult {
	return r.StoreTier(h, Device, parent, hasParent, hashes, contents)
}

// StoreTier is Index.Store of blocks in a tier, with one more copy counted there for every block that was held
// already. If that puts the index above its bound, it gives up cold blocks of any holder before it returns: see
// Shed.
func (r *Residency) StoreTier(h Holder, tier Tier, parent uint64, hasParent bool, hashes, contents []uint64) StoreResult {
	if h >= MaxHolders {
		return r.index.Store(h, parent, hasParent, hashes, contents) // refused, and counted there
	}
	res := r.store(h, tier, parent, hasParent, hashes, contents)
	if r.bounded != nil && r.bounded.Over() {
		r.shed()
	}
	return res
}

func (r *Residency) store(h Holder, tier Tier, parent uint64, hasParent bool, hashes, contents []uint64) StoreResult {
	s := r.of(h)
	s.mu.Lock()
	defer s.mu.Unlock()
	res := r.index.Store(h, parent, hasParent, hashes, contents)
	if res.UnknownParent || res.Refused > 0 {
		return res
	}
	// Every hash now has a copy in the tier; those that had one there before are taken out below.
	for _, hash := range hashes {
		s.digest[tier] += tokens.DigestTerm(hash)
	}
	s.blocks[tier] += len(hashes)
	if tier == Device {
		for _, hash := range res.Known {
			s.again(hash, Device)
		}
		return res
	}
	// The index lists the known ones in the order of the store. A new hash that comes twice is known the second time
	// only, so they are told apart from the end.
	known := len(res.Known)
	for _, hash := range slices.Backward(hashes) {
		if known > 0 && res.Known[known-1] == hash {
			known--
		} else {
			s.add(hash, tier, counts{})
		}
	}
	for _, hash := range res.Known {
		s.again(hash, tier)
	}
	return res
}

// count is the copies of a held hash.
func (s *resident) count(hash uint64) counts {
	if c, ok := s.copies[hash]; ok {
		return c
	}
	return counts{Device: 1}
}

// again counts one more copy of a hash that was held already and that the tier's sums count as new.
func (s *resident) again(hash uint64, tier Tier) {
	c := s.count(hash)
	if c[tier] > 0 {
		s.sum(hash, tier, -1)
	}
	s.add(hash, tier, c)
}

// sum counts a hash into the sums of a tier, or out of them (-1).
func (s *resident) sum(hash uint64, tier Tier, by int) {
	s.blocks[tier] += by
	s.digest[tier] += uint64(by) * tokens.DigestTerm(hash)
}

// add counts one more copy than there were.
func (s *resident) add(hash uint64, tier Tier, c counts) {
	c[tier] = min(c[tier]+1, MaxCopies)
	s.copies[hash] = c
}

// Attach counts one more copy in a tier for each hash that h holds already, at the place that it has; it is for
// events that name blocks and do not describe them. It overwrites hashes with the others, which it returns:
// nobody knows where they belong.
func (r *Residency) Attach(h Holder, tier Tier, hashes []uint64) (unknown []uint64) {
	if h >= MaxHolders {
		return hashes
	}
	s := r.of(h)
	s.mu.Lock()
	defer s.mu.Unlock()
	unknown = hashes[:0]
	for _, hash := range hashes {
		if !r.index.Holds(h, hash) {
			unknown = append(unknown, hash)
			continue
		}
		s.sum(hash, tier, 1)
		s.again(hash, tier)
	}
	return unknown
}

// Remove is RemoveTier on the device.
func (r *Residency) Remove(h Holder, hashes []uint64) (removed, unknown int) {
	return r.RemoveTier(h, Device, hashes)
}

// RemoveTier takes one copy of each hash out of a tier. removed counts the memberships that ended with their
// last copy in any tier, unknown the hashes of which the holder had no copy there. It overwrites hashes: first
// those of ended memberships, then the unknown ones, then nothing of meaning.
func (r *Residency) RemoveTier(h Holder, tier Tier, hashes []uint64) (removed, unknown int) {
	if h >= MaxHolders {
		return r.index.Remove(h, hashes)
	}
	s := r.of(h)
	s.mu.Lock()
	defer s.mu.Unlock()
	last, absent := hashes, []uint64(nil)
	if len(s.copies) > 0 || tier != Device {
		last, absent = s.takeCopies(hashes, tier)
	}
	removed, unknown = r.index.Remove(h, last)
	for _, hash := range last[:removed] {
		s.sum(hash, tier, -1)
	}
	copy(hashes[removed+unknown:], absent)
	return removed, unknown + len(absent)
}

// takeCopies takes one copy of each hash. It returns, in place, those whose membership ends with it, if there
// is one, and those that had no copy in this tier although they may have one in another. The former are still in
// the tier's sums.
func (s *resident) takeCopies(hashes []uint64, tier Tier) (last, absent []uint64) {
	last = hashes[:0]
	for _, hash := range hashes {
		c, counted := s.copies[hash]
		switch {
		case !counted && tier == Device:
			last = append(last, hash)
			continue
		case c[tier] == 0:
			absent = append(absent, hash)
			continue
		}
		switch c[tier]--; c {
		case counts{}:
			delete(s.copies, hash)
			last = append(last, hash)
			continue
		case counts{Device: 1}:
			delete(s.copies, hash)
		default:
			s.copies[hash] = c
		}
		if c[tier] == 0 {
			s.sum(hash, tier, -1)
		}
	}
	return last, absent
}

// Clear ends every membership of h, whatever its copies.
func (r *Residency) Clear(h Holder) {
	s := r.of(h)
	s.mu.Lock()
	defer s.mu.Unlock()
	r.index.Clear(h)
	s.digest, s.blocks = [tiers]uint64{}, [tiers]int{}
	clear(s.copies)
}

// Drop clears h and forgets it. No event of h may follow before the id is given to another holder.
func (r *Residency) Drop(h Holder) {
	r.mu.Lock()
	delete(r.holders, h)
	r.mu.Unlock()
	r.index.Drop(h)
}

// Digest is the sum of tokens.DigestTerm over the distinct hashes that h has on the device: 0 for an empty or
// unknown holder.
func (r *Residency) Digest(h Holder) uint64 {
	_, digest := r.Sums(h, Device)
	return digest
}

// Sums are the count and the digest of the distinct hashes of h in a tier.
func (r *Residency) Sums(h Holder, tier Tier) (blocks int, digest uint64) {
	r.mu.RLock()
	s := r.holders[h]
	r.mu.RUnlock()
	if s == nil {
		return 0, 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.blocks[tier], s.digest[tier]
}

// EachTier calls fn for every membership of h, in no order, with the tiers that have it: at least one. The index
// and the holder are locked meanwhile: fn must call neither.
func (r *Residency) EachTier(h Holder, fn func(m Membership, device, host bool) bool) {
	r.mu.RLock()
	s := r.holders[h]
	r.mu.RUnlock()
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r.index.Each(h, func(m Membership) bool {
		c := s.count(m.Hash)
		return c[Device] == 0 && c[Host] == 0 || fn(m, c[Device] > 0, c[Host] > 0)
	})
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
		for tier, copies := range s.count(hash) {
			if copies > 0 {
				s.sum(hash, Tier(tier), -1)
			}
		}
		delete(s.copies, hash)
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
		s = &resident{copies: make(map[uint64]counts)}
		r.holders[h] = s
	}
	return s
}
