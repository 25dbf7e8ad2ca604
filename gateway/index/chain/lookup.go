package chain

import (
	"math/bits"
	"sync/atomic"

	"fleetdrill/gateway/index"
)

const (
	// maxDepth is how many runs a lookup walks without the lock. Chains of more are very rare: a run ends
	// only where two holders went on from the same block.
	maxDepth = 64
	// attempts is how often a lookup starts again, having met a writer, before it takes the lock.
	attempts = 8
	// spins is how often a lookup looks at a run that is being changed before it starts again.
	spins = 64
	// fixedHolders is how many holders a lookup serves without allocating.
	fixedHolders = 1024
)

// visit is a run that a lookup read, and the version it had then.
type visit struct {
	run     *run
	version uint64
}

// alive is the set of holders that have every block so far; lost is scratch for those that end in the run
// at hand.
type alive struct{ bits, lost []uint64 }

// Lookup implements index.Index. It takes no lock and writes nothing that others read: it walks the runs,
// then checks that none of them changed since it was read, so that the scores are those of one moment.
// Only if writers are in the way again and again does it wait for them.
func (x *Index) Lookup(chain []uint64, dst index.Scores) index.Scores {
	n := len(x.holders.All())
	if cap(dst) < n {
		dst = make(index.Scores, n)
	}
	dst = dst[:n]
	var fixed [2 * fixedHolders / 64]uint64
	words := (n + 63) / 64
	scratch := fixed[:]
	if 2*words > len(fixed) {
		scratch = make([]uint64, 2*words)
	}
	set := alive{scratch[:words], scratch[words : 2*words]}
	for range attempts {
		if x.try(chain, dst, set) {
			return dst
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.walk(chain, dst, set, func(visit) bool { return true })
	return dst
}

// try is one walk without the lock; false if a writer was in the way.
func (x *Index) try(chain []uint64, dst index.Scores, set alive) bool {
	var p path
	return x.walk(chain, dst, set, p.add) && p.unchanged()
}

// path is the runs that a lookup read, in order.
type path struct {
	visits [maxDepth]visit
	depth  int
}

// add is false when the path is full.
func (p *path) add(v visit) bool {
	if p.depth == maxDepth {
		return false
	}
	p.visits[p.depth] = v
	p.depth++
	return true
}

// unchanged reports that no run changed since it was added. Then all that was read was there at once: when
// the last run was added, the first had not changed yet.
func (p *path) unchanged() bool {
	for _, v := range p.visits[:p.depth] {
		if v.run.version.Load() != v.version {
			return false
		}
	}
	return true
}

// walk fills dst. It calls seen for every run before it reads it, and gives up when seen says so or when
// what it reads makes no sense. The answer is right if no run changed since it was seen.
func (x *Index) walk(chain []uint64, dst index.Scores, set alive, seen func(visit) bool) bool {
	clear(dst)
	clear(set.bits)
	if len(chain) == 0 {
		return true
	}
	at := visit{run: x.runs.at(rootOf(chain[0]))}
	if !at.settled() || !seen(at) {
		return false
	}
	for position, offset := 0, uint32(0); ; {
		id := x.child(at.run, offset, chain[position])
		next := visit{run: x.runs.find(id)}
		if id == 0 {
			set.score(dst, uint32(position))
			return true
		}
		// The run may be another's by now. Then its parent changed, which the caller notices.
		if next.run == nil || !next.settled() || !seen(next) {
			return false
		}
		at = next
		ref, n, _ := at.run.content.load()
		if n == 0 {
			return false
		}
		x.warm(at.run, n, chain[position:])
		offset = match(x.arena.view(ref, n), chain[position:])
		through := x.pass(at.run, dst, set, uint32(position), offset)
		position += int(offset)
		if !through || position == len(chain) {
			set.score(dst, uint32(position))
			return true
		}
	}
}

// settled reads the version of a run that is not being changed; false if that takes too long.
func (v *visit) settled() bool {
	for range spins {
		if v.version = v.run.version.Load(); v.version&1 == 0 {
			return true
		}
	}
	return false
}

// pass takes the alive holders through the first matched blocks of a run that begins at position: those
// that do not have them all get their score and leave. It reports whether any is left.
func (x *Index) pass(r *run, dst index.Scores, set alive, position, matched uint32) (any bool) {
	ref, width, sole := r.cover.load()
	var cover []uint64
	if width > 0 {
		cover = x.arena.view(ref, width)
	}
	ended := false
	for w := range set.bits {
		var whole uint64
		switch {
		case w < len(cover):
			whole = atomic.LoadUint64(&cover[w])
		case sole != 0 && uint32(w) == ref/64:
			whole = 1 << (ref % 64)
		}
		if position == 0 {
			// Holders that came to be known after the lookup began have no place in dst.
			if rest := len(dst) - w*64; rest < 64 {
				whole &= 1<<rest - 1
			}
			set.bits[w], set.lost[w] = whole, ^whole
			continue
		}
		set.lost[w] = set.bits[w] &^ whole
		set.bits[w] &= whole
		for left := set.lost[w]; left != 0; left &= left - 1 {
			ended = true
			dst[w*64+bits.TrailingZeros64(left)] = position
		}
	}
	if position == 0 || ended {
		x.passPartial(r, dst, set, position, matched)
	}
	for _, w := range set.bits {
		if w != 0 {
			return true
		}
	}
	return false
}

// passPartial is pass for the lost holders that have some of the run: those whose cutoff is not below the
// matched blocks go on, because the chain leaves the run before they do.
func (x *Index) passPartial(r *run, dst index.Scores, set alive, position, matched uint32) {
	ref, n, room := r.partial.load()
	if n == 0 {
		return
	}
	table := x.arena.view(ref, room)[:n]
	for i := range table {
		e := atomic.LoadUint64(&table[i])
		h, lead := int(e>>32), uint32(e)
		if h >= len(dst) || set.lost[h/64]>>(h%64)&1 == 0 {
			continue
		}
		if lead >= matched {
			set.bits[h/64] |= 1 << (h % 64)
		} else {
			dst[h] = position + lead
		}
	}
}

// score gives every holder that is still alive its score.
func (s alive) score(dst index.Scores, position uint32) {
	for w, left := range s.bits {
		for ; left != 0; left &= left - 1 {
			dst[w*64+bits.TrailingZeros64(left)] = position
		}
	}
}

// warm has what a lookup will read of a run of n blocks brought to the cache side by side: the bits, the partial
// entries, and the child behind its end, if the chain goes on so far. One after the other they would be a miss each,
// because where contents part is a branch that cannot be foreseen.
func (x *Index) warm(r *run, n uint32, chain []uint64) {
	if ref, words, _ := r.cover.load(); words > 0 {
		prefetchWord(x.arena.word(ref, 0))
	}
	if ref, entries, _ := r.partial.load(); entries > 0 {
		prefetchWord(x.arena.word(ref, 0))
	}
	if ref, log, _ := r.children.load(); ref != 0 && int(n) < len(chain) {
		prefetchWord(x.arena.word(ref, 2*slotOf(n, chain[n], log)))
	}
}
