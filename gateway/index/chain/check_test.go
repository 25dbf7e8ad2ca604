package chain

import (
	"fmt"
	"math/bits"
	"testing"

	"fleetdrill/gateway/index"
	"fleetdrill/gateway/index/indextest"
	"fleetdrill/gateway/index/maptree"
)

// usage is what an index is made of, counted by walking it.
type usage struct {
	runs, blocks, partials, bitmaps int
	// used, free and total are words of the arena; slots are those of all places maps.
	used, free, total int64
	slots             int
}

// check walks the whole index and reports the first thing that is not as it must be. Nobody may write
// meanwhile.
func (x *Index) check() (u usage, err error) {
	if len(x.opened) > 0 {
		return u, fmt.Errorf("%d runs were left open", len(x.opened))
	}
	held := map[index.Holder]int{}
	var visit func(id uint32)
	fail := func(id uint32, format string, args ...any) {
		if err == nil {
			err = fmt.Errorf("run %d: %s", id, fmt.Sprintf(format, args...))
		}
	}
	visit = func(id uint32) {
		r := x.runs.at(id)
		_, n, size := r.content.load()
		if r.version.Load()&1 != 0 {
			fail(id, "odd version")
		}
		if id >= roots {
			u.runs++
			u.blocks += int(n)
			u.used += int64(size)
			fulls := x.countBits(r, n, held, &u)
			partials := x.checkPartials(id, r, n, held, &u, fail)
			if fulls != r.fulls {
				fail(id, "%d whole holders, counted as %d", fulls, r.fulls)
			}
			if n == 0 || n > maxRun || n > size {
				fail(id, "length %d, capacity %d", n, size)
			}
			if fulls+partials+r.kids == 0 {
				fail(id, "nobody needs it")
			}
			if fulls == 0 && x.reach(r, n) != n {
				fail(id, "its last of %d blocks is nobody's; reach %d", n, x.reach(r, n))
			}
		}
		ref, log, _ := r.children.load()
		if ref == 0 {
			if r.kids != 0 {
				fail(id, "%d children and no table", r.kids)
			}
			return
		}
		u.used += 2 << log
		kids := uint32(0)
		table := x.arena.view(ref, 2<<log)
		for i := 0; i < len(table); i += 2 {
			if table[i+1] == 0 {
				continue
			}
			kids++
			child, offset := uint32(table[i+1]), uint32(table[i+1]>>32)
			c := x.runs.at(child)
			if x.child(r, offset, table[i]) != child {
				fail(id, "child %d is not found", child)
			}
			if c.parent != id || c.offset != offset || c.start != r.start+offset || offset > n {
				fail(child, "parent %d offset %d start %d, entered at %d offset %d", c.parent, c.offset, c.start, id, offset)
			}
			first, cn, _ := c.content.load()
			if cn == 0 || x.arena.view(first, 1)[0] != table[i] {
				fail(child, "its first block is not the one it is entered under")
			}
			if ref, n, _ := r.content.load(); offset < n && x.arena.view(ref, n)[offset] == table[i] {
				fail(child, "it repeats its parent's next block")
			}
			visit(child)
		}
		if kids != r.kids {
			fail(id, "%d children, counted as %d", kids, r.kids)
		}
	}
	for id := range uint32(roots) {
		visit(id)
	}
	for h, s := range x.holders.All() {
		if s == nil {
			if held[index.Holder(h)] != 0 {
				return u, fmt.Errorf("dropped holder %d holds blocks", h)
			}
			continue
		}
		names := 0
		for at, n := range s.twins {
			names += int(n)
			if n == 0 || !x.has(x.holding(x.runs.at(at.run()), index.Holder(h)), at.offset()) {
				return u, fmt.Errorf("holder %d: twins of a block that is not held", h)
			}
		}
		u.slots += len(s.places.slots)
		if held[index.Holder(h)]+names != s.places.n {
			return u, fmt.Errorf("holder %d: %d blocks and %d twins under %d names", h, held[index.Holder(h)], names, s.places.n)
		}
	}
	if int64(u.runs) != x.runs.live.Load() || int64(u.blocks) != x.nodes.Load() {
		return u, fmt.Errorf("%d runs of %d blocks, counted as %d of %d", u.runs, u.blocks, x.runs.live.Load(), x.nodes.Load())
	}
	u.total, u.free = x.arena.words()
	return u, err
}

func (x *Index) countBits(r *run, n uint32, held map[index.Holder]int, u *usage) (fulls uint32) {
	ref, words, sole := r.cover.load()
	if sole != 0 {
		held[index.Holder(ref)] += int(n)
		return 1
	}
	u.used += int64(words)
	for w, word := range x.arena.view(ref, words) {
		for ; word != 0; word &= word - 1 {
			held[index.Holder(w*64+bits.TrailingZeros64(word))] += int(n)
			fulls++
		}
	}
	return fulls
}

func (x *Index) checkPartials(id uint32, r *run, n uint32, held map[index.Holder]int, u *usage, fail func(uint32, string, ...any)) uint32 {
	ref, entries, room := r.partial.load()
	u.used += 2 * int64(room)
	u.partials += int(entries)
	seen := map[index.Holder]bool{}
	for i := range entries {
		e, bitmap := x.arena.view(ref, 2*room)[i], x.arena.view(ref, 2*room)[room+i]
		h, lead := index.Holder(e>>32), uint32(e)
		if seen[h] || x.covers(r, h) {
			fail(id, "holder %d is there twice", h)
		}
		seen[h] = true
		if bitmap == 0 {
			if lead == 0 || lead >= n {
				fail(id, "holder %d has a cutoff of %d in %d", h, lead, n)
			}
			held[h] += int(lead)
			continue
		}
		u.bitmaps++
		u.used += int64(uint32(bitmap))
		total, leading := 0, uint32(0)
		for w, word := range x.arena.view(uint32(bitmap>>32), uint32(bitmap)) {
			total += bits.OnesCount64(word)
			if leading == uint32(w*64) {
				leading += uint32(bits.TrailingZeros64(^word))
			}
		}
		if leading != lead || total <= int(lead) {
			fail(id, "holder %d has a cutoff of %d, a bitmap with %d leading of %d", h, lead, leading, total)
		}
		held[h] += total
	}
	return entries
}

// twin feeds a chain index and a map tree, and checks the first against itself and the second whenever
// it is asked for statistics.
type twin struct {
	*Index
	tree *maptree.Tree
	fail func(error)
}

func (w twin) Store(h index.Holder, parent uint64, hasParent bool, hashes, contents []uint64) index.StoreResult {
	w.tree.Store(h, parent, hasParent, hashes, contents)
	return w.Index.Store(h, parent, hasParent, hashes, contents)
}

func (w twin) Remove(h index.Holder, hashes []uint64) (removed, unknown int) {
	w.tree.Remove(h, append([]uint64(nil), hashes...))
	return w.Index.Remove(h, hashes)
}

func (w twin) Clear(h index.Holder) { w.tree.Clear(h); w.Index.Clear(h) }
func (w twin) Drop(h index.Holder)  { w.tree.Drop(h); w.Index.Drop(h) }

func (w twin) Stats() index.Stats {
	s := w.Index.Stats()
	if tree := w.tree.Stats(); s != tree {
		w.fail(fmt.Errorf("%+v, the map tree has %+v", s, tree))
	}
	u, err := w.check()
	if err != nil {
		w.fail(err)
	}
	if u.used+u.free+1 != u.total && len(*w.arena.chunks.Load()) == 1 {
		w.fail(fmt.Errorf("of %d words %d are used and %d free: some are lost", u.total, u.used, u.free))
	}
	return s
}

// Every invariant holds after every event, no word is lost, and exactly the places exist that a tree of
// single blocks would have.
func TestInvariants(t *testing.T) {
	indextest.Index(t, func() index.Index {
		return twin{New(), maptree.New(), func(err error) { panic(err) }}
	})
}

// sized arrays have their class's size back.
func TestSizeClasses(t *testing.T) {
	last := -1
	for n := uint32(1); n < 1<<20; n++ {
		class, size := classOf(n)
		again, same := classOf(size)
		if size < n || size > n+n/4+1 || class != again || size != same || class < last {
			t.Fatalf("%d words: class %d of %d, which is class %d of %d", n, class, size, again, same)
		}
		last = class
	}
	if class, _ := classOf(1<<32 - 1<<29); class >= sizeClasses {
		t.Fatalf("class %d", class)
	}
}

// The engine-hash map equals a Go map at every step, and its slots stay few while hashes come and go.
func TestPlacesEqualAMap(t *testing.T) {
	var p places
	model := map[uint64]place{}
	state := uint64(1)
	next := func(n uint64) uint64 { state = state*6364136223846793005 + 1442695040888963407; return state >> 33 % n }
	for i := range 200_000 {
		hash := next(3000)
		if next(2) == 0 {
			p.reserve(1)
			at := placeOf(roots, uint32(i))
			if old := p.put(hash, at); old != model[hash] {
				t.Fatalf("step %d: put %d over %v, want %v", i, hash, old, model[hash])
			}
			model[hash] = at
		} else {
			if old := p.take(hash); old != model[hash] {
				t.Fatalf("step %d: took %d from %v, want %v", i, hash, old, model[hash])
			}
			delete(model, hash)
			p.shrink()
		}
		probe := next(3000)
		if p.get(probe) != model[probe] || p.n != len(model) {
			t.Fatalf("step %d: %d is at %v, want %v; %d names, want %d", i, probe, p.get(probe), model[probe], p.n, len(model))
		}
	}
	if len(p.slots) > 3000*2 {
		t.Fatalf("%d slots for at most 3000 names", len(p.slots))
	}
}
