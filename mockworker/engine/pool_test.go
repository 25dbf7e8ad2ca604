package engine

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"fleetdrill/internal/tokens"
	"fleetdrill/mockworker/blockhash"
)

// TestPoolAgainstReference compares the pool's links, lazy range and probing with a list of ids and a map
// of lists, in orders of use that the scheduler alone would hardly reach.
func TestPoolAgainstReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 12).Draw(t, "blocks")
		r := &poolRef{p: newPool(n, 2), copies: map[uint64][]int32{}, hash: map[int32]uint64{}}
		for id := 1; id < n; id++ {
			r.free = append(r.free, int32(id))
		}
		t.Repeat(map[string]func(*rapid.T){
			"take": r.take, "store": r.store, "touch": r.touch, "release": r.release,
			"clear": r.clear,
			"":      r.check,
		})
	})
}

// poolRef is a pool written for clarity.
type poolRef struct {
	p      *pool
	free   []int32
	held   []int32            // one entry per reference
	hash   map[int32]uint64   // of cached blocks
	copies map[uint64][]int32 // in the order they were stored
}

func (r *poolRef) take(t *rapid.T) {
	if len(r.free) == 0 {
		t.Skip("nothing free")
	}
	want := r.free[0]
	hash, cached := r.hash[want]
	id, evicted, was := r.p.take()
	if id != want || was != cached || was && evicted.hash.EventInt() != hash {
		t.Fatalf("took %d (%v, %v), want %d (%d, %v)", id, evicted, was, want, hash, cached)
	}
	r.free, r.held = r.free[1:], append(r.held, id)
	r.uncache(id)
}

func (r *poolRef) uncache(id int32) {
	hash := r.hash[id]
	r.copies[hash] = slices.DeleteFunc(r.copies[hash], func(c int32) bool { return c == id })
	if len(r.copies[hash]) == 0 {
		delete(r.copies, hash)
	}
	delete(r.hash, id)
}

// store draws from few hashes of two groups.
func (r *poolRef) store(t *rapid.T) {
	id := r.anyHeld(t)
	if _, ok := r.hash[id]; ok {
		t.Skip("already cached")
	}
	hash := rapid.Uint64Range(0, 5).Draw(t, "hash")<<32 + rapid.Uint64Range(1, 2).Draw(t, "slot")
	r.p.store(id, blockhash.FromInt(hash), int32(hash&1), 0, 0, 0)
	r.hash[id] = hash
	r.copies[hash] = append(r.copies[hash], id)
}

func (r *poolRef) anyHeld(t *rapid.T) int32 {
	if len(r.held) == 0 {
		t.Skip("nothing held")
	}
	return rapid.SampledFrom(r.held).Draw(t, "held")
}

func (r *poolRef) touch(t *rapid.T) {
	var cached []int32
	for id := range int32(len(r.p.blocks)) {
		if _, ok := r.hash[id]; ok {
			cached = append(cached, id)
		}
	}
	if len(cached) == 0 {
		t.Skip("nothing cached")
	}
	id := rapid.SampledFrom(cached).Draw(t, "cached")
	r.p.touch(id)
	r.held = append(r.held, id)
	r.free = slices.DeleteFunc(r.free, func(f int32) bool { return f == id })
}

func (r *poolRef) release(t *rapid.T) {
	id := r.anyHeld(t)
	r.p.release([]int32{id})
	at := slices.Index(r.held, id)
	r.held = slices.Delete(r.held, at, at+1)
	if slices.Contains(r.held, id) {
		return
	}
	if _, ok := r.hash[id]; ok {
		r.free = append(r.free, id)
	} else {
		r.free = slices.Insert(r.free, 0, id)
	}
}

func (r *poolRef) clear(t *rapid.T) {
	if len(r.held) > 0 || rapid.IntRange(0, 3).Draw(t, "seldom") > 0 {
		t.Skip("not now")
	}
	r.p.clear()
	clear(r.hash)
	clear(r.copies)
}

func (r *poolRef) check(t *rapid.T) {
	free := slices.Collect(r.p.free.each)
	if diff := cmp.Diff(r.free, free); diff != "" && len(free)+len(r.free) > 0 {
		t.Fatalf("free queue (-want +got):\n%s", diff)
	}
	if r.p.free.size != len(free) || r.p.idle() != (len(r.held) == 0) {
		t.Fatalf("size %d of %d, idle %v with %d held", r.p.free.size, len(free), r.p.idle(), len(r.held))
	}
	copies := map[uint64][]int32{}
	for _, s := range r.p.table.slots {
		for id := s.id; id != nullBlock; id = r.p.table.nextCopy(id) {
			hash := r.p.keyOf(id)
			copies[hash] = append(copies[hash], id)
		}
	}
	if diff := cmp.Diff(r.copies, copies); diff != "" {
		t.Fatalf("copies (-want +got):\n%s", diff)
	}
	var sums [2]sum
	for hash := range r.copies {
		s := &sums[hash&1]
		s.blocks, s.digest = s.blocks+1, s.digest+tokens.DigestTerm(hash)
	}
	if diff := cmp.Diff(sums[:], r.p.sums, cmp.AllowUnexported(sum{})); diff != "" {
		t.Fatalf("sums (-want +got):\n%s", diff)
	}
	for hash, ids := range r.copies {
		d := blockhash.FromInt(hash)
		if got := r.p.first(&d, int32(hash&1)); got != ids[0] {
			t.Fatalf("first copy of %d is %d, want %d", hash, got, ids[0])
		}
	}
}
