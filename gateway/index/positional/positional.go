package positional

import (
	"slices"
	"sync"
	"sync/atomic"

	"fleetdrill/gateway/index"
	"fleetdrill/internal/tokens"
)

// jump is how many blocks a lookup skips at once.
const jump = 32

// prefix identifies a block with all blocks before it: the prefix hash over their contents, and the number
// of blocks. Two chains with one prefix hash at one position would be taken for one: 64 bits.
type prefix struct {
	hash     uint64
	position int
}

// next is the prefix that content makes of p. The zero prefix has position 0: nothing before.
func (p prefix) next(content uint64) prefix {
	if p.position == 0 {
		return prefix{hash: content, position: 1}
	}
	return prefix{hash: tokens.PrefixNext(p.hash, content), position: p.position + 1}
}

// entry is one block of one chain. It lives while a holder has it or a block right behind it.
type entry struct {
	parent  prefix
	content uint64
	holders map[index.Holder]*share
}

// share is what one holder has of an entry.
type share struct {
	names uint32 // engine hashes of the holder that name it
	kids  uint32 // blocks right behind it that the holder has
}

// holder is one holder's names, and how many of its blocks have a parent that it does not have.
type holder struct {
	names   map[uint64]prefix
	orphans int
}

// Index is the positional index. Make it with New.
type Index struct {
	mu      sync.RWMutex
	entries map[prefix]*entry
	holders []*holder
	// refused counts blocks of holders that cannot be.
	refused atomic.Int64
	// trusting leaves the check for orphans out, as the published design does. Only a test sets it, to
	// count what that gets wrong.
	trusting bool
}

var _ index.Index = (*Index)(nil)

// New returns an empty index.
func New() *Index { return &Index{entries: make(map[prefix]*entry)} }

// Store implements index.Index.
func (x *Index) Store(h index.Holder, parent uint64, hasParent bool, hashes, contents []uint64) (res index.StoreResult) {
	if h >= index.MaxHolders {
		x.refused.Add(int64(len(hashes)))
		return index.StoreResult{Refused: len(hashes)}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.open(h)
	var at prefix
	if hasParent {
		known := false
		if at, known = s.names[parent]; !known {
			return index.StoreResult{UnknownParent: true}
		}
	}
	for i, hash := range hashes {
		under := at
		at = at.next(contents[i])
		old, known := s.names[hash]
		if known {
			res.Known = append(res.Known, hash)
		}
		switch {
		case known && old == at:
			res.Duplicate++
			continue
		case known:
			res.Moved++
		default:
			res.Stored++
		}
		x.name(h, s, at, under, contents[i])
		s.names[hash] = at
		if known {
			x.unname(h, s, old)
		}
	}
	return res
}

// Remove implements index.Index.
func (x *Index) Remove(h index.Holder, hashes []uint64) (removed, unknown int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.known(h)
	if s == nil {
		return 0, len(hashes)
	}
	for i, hash := range hashes {
		at, known := s.names[hash]
		if !known {
			continue
		}
		delete(s.names, hash)
		x.unname(h, s, at)
		hashes[removed], hashes[i] = hash, hashes[removed]
		removed++
	}
	return removed, len(hashes) - removed
}

// Clear implements index.Index.
func (x *Index) Clear(h index.Holder) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.empty(h)
}

// Drop implements index.Index.
func (x *Index) Drop(h index.Holder) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.empty(h); x.known(h) != nil {
		x.holders[h] = nil
	}
}

func (x *Index) empty(h index.Holder) {
	if s := x.known(h); s != nil {
		for hash, at := range s.names {
			delete(s.names, hash)
			x.unname(h, s, at)
		}
	}
}

// Lookup implements index.Index.
func (x *Index) Lookup(chain []uint64, dst index.Scores) index.Scores {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if cap(dst) < len(x.holders) {
		dst = make(index.Scores, len(x.holders))
	}
	dst = dst[:len(x.holders)]
	clear(dst)
	prefixes := make([]prefix, len(chain)+1)
	for i, content := range chain {
		prefixes[i+1] = prefixes[i].next(content)
	}
	var alive, walked []index.Holder
	for h, s := range x.holders {
		switch {
		case s == nil || len(s.names) == 0:
		case s.orphans > 0 && !x.trusting:
			walked = append(walked, index.Holder(h))
		default:
			alive = append(alive, index.Holder(h))
		}
	}
	for _, h := range walked {
		dst[h] = uint32(x.walk(h, prefixes, 0, len(chain)))
	}
	for from := 0; from < len(chain) && len(alive) > 0; {
		to := min(from+jump, len(chain))
		alive = slices.DeleteFunc(alive, func(h index.Holder) bool {
			if x.has(h, prefixes[to]) {
				dst[h] = uint32(to)
				return false
			}
			dst[h] = uint32(x.walk(h, prefixes, from, to))
			return true
		})
		from = to
	}
	return dst
}

// walk is the number of leading blocks that h has, which is at least from; it looks no further than to.
func (x *Index) walk(h index.Holder, prefixes []prefix, from, to int) int {
	for from < to && x.has(h, prefixes[from+1]) {
		from++
	}
	return from
}

// has reports whether h has a block.
func (x *Index) has(h index.Holder, p prefix) bool {
	e := x.entries[p]
	if e == nil {
		return false
	}
	s := e.holders[h]
	return s != nil && s.names > 0
}

// Holds implements index.Index.
func (x *Index) Holds(h index.Holder, hash uint64) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	s := x.known(h)
	if s == nil {
		return false
	}
	_, held := s.names[hash]
	return held
}

// Count implements index.Index.
func (x *Index) Count(h index.Holder) int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if s := x.known(h); s != nil {
		return len(s.names)
	}
	return 0
}

// Stats implements index.Index. Nodes are entries.
func (x *Index) Stats() index.Stats {
	x.mu.RLock()
	defer x.mu.RUnlock()
	out := index.Stats{Nodes: int64(len(x.entries)), Refused: x.refused.Load()}
	for _, s := range x.holders {
		if s != nil {
			out.Holders++
			out.Memberships += int64(len(s.names))
		}
	}
	return out
}

// Each implements index.Index.
func (x *Index) Each(h index.Holder, fn func(index.Membership) bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	s := x.known(h)
	if s == nil {
		return
	}
	for hash, at := range s.names {
		if !fn(index.Membership{Hash: hash, Position: at.position - 1, Content: x.entries[at].content}) {
			return
		}
	}
}

// known is the record of h, nil if there is none.
func (x *Index) known(h index.Holder) *holder {
	if int(h) >= len(x.holders) {
		return nil
	}
	return x.holders[h]
}

// open is the record of h, made on first use.
func (x *Index) open(h index.Holder) *holder {
	for int(h) >= len(x.holders) {
		x.holders = append(x.holders, nil)
	}
	if x.holders[h] == nil {
		x.holders[h] = &holder{names: make(map[uint64]prefix)}
	}
	return x.holders[h]
}

// share is h's share of an entry, made on first use.
func (x *Index) share(h index.Holder, p prefix) *share {
	e := x.entries[p]
	if e == nil {
		e = &entry{holders: make(map[index.Holder]*share, 1)}
		x.entries[p] = e
	}
	if e.holders[h] == nil {
		e.holders[h] = &share{}
	}
	return e.holders[h]
}

// name gives h one more name for a block. With the first name the blocks behind it are orphans no more,
// and it is one if its parent is missing.
func (x *Index) name(h index.Holder, s *holder, at, under prefix, content uint64) {
	sh := x.share(h, at)
	if sh.names++; sh.names > 1 {
		return
	}
	e := x.entries[at]
	e.parent, e.content = under, content
	s.orphans -= int(sh.kids)
	if under.position == 0 {
		return
	}
	parent := x.share(h, under)
	if parent.kids++; parent.names == 0 {
		s.orphans++
	}
}

// unname takes one name of h off a block. With the last name the blocks behind it are orphans.
func (x *Index) unname(h index.Holder, s *holder, at prefix) {
	e := x.entries[at]
	sh := e.holders[h]
	if sh.names--; sh.names > 0 {
		return
	}
	s.orphans += int(sh.kids)
	if under := e.parent; under.position > 0 {
		parent := x.entries[under].holders[h]
		if parent.kids--; parent.names == 0 {
			s.orphans--
		}
		x.sweep(h, under)
	}
	x.sweep(h, at)
}

// sweep forgets a share that holds nothing, and an entry without shares.
func (x *Index) sweep(h index.Holder, p prefix) {
	e := x.entries[p]
	if sh := e.holders[h]; sh.names == 0 && sh.kids == 0 {
		delete(e.holders, h)
	}
	if len(e.holders) == 0 {
		delete(x.entries, p)
	}
}
