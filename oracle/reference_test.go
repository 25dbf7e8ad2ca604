package oracle

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The reference is checked by hand, because everything else is checked by it.
func TestReferenceByHand(t *testing.T) {
	r := NewReference(8)
	store := func(want Stored, parent uint64, hasParent bool, hashes, contents []uint64) {
		t.Helper()
		if diff := cmp.Diff(want, r.Store(0, parent, hasParent, hashes, contents)); diff != "" {
			t.Fatal(diff)
		}
	}
	remove := func(wantRemoved, wantUnknown int, hashes ...uint64) {
		t.Helper()
		if removed, unknown := r.Remove(0, hashes); removed != wantRemoved || unknown != wantUnknown {
			t.Fatalf("removing %v: %d removed, %d unknown; want %d, %d", hashes, removed, unknown, wantRemoved, wantUnknown)
		}
	}
	score := func(want int, chain ...uint64) {
		t.Helper()
		if got := r.Score(0, chain); got != want {
			t.Fatalf("score of %v is %d, want %d", chain, got, want)
		}
	}

	store(Stored{Stored: 3}, 0, false, []uint64{1, 2, 3}, []uint64{10, 20, 30})
	score(3, 10, 20, 30)
	score(2, 10, 20, 31)
	score(0, 20, 30)

	remove(1, 1, 2, 99) // a hole
	score(1, 10, 20, 30)
	store(Stored{Stored: 1}, 1, true, []uint64{4}, []uint64{20}) // healed under another name
	score(3, 10, 20, 30)

	store(Stored{Duplicate: 1}, 4, true, []uint64{3}, []uint64{30}) // a second copy
	remove(0, 0, 3)
	score(3, 10, 20, 30)
	remove(1, 0, 3)
	score(2, 10, 20, 30)

	store(Stored{Moved: 1}, 0, false, []uint64{4}, []uint64{50})
	score(1, 10, 20)
	score(1, 50)
	store(Stored{UnknownParent: true}, 3, true, []uint64{5}, []uint64{60})

	want := map[uint64]Block{1: {Hash: 1, Position: 0, Content: 10}, 4: {Hash: 4, Position: 0, Content: 50}}
	if diff := cmp.Diff(want, r.Blocks(0)); diff != "" {
		t.Fatal(diff)
	}
	if diff := cmp.Diff([]uint64{50}, r.Chain(0, 4)); diff != "" || r.Chain(0, 77) != nil {
		t.Fatal(diff)
	}
	r.Clear(0)
	score(0, 10)
	r.Drop(0)
	if len(r.Blocks(0)) != 0 {
		t.Fatal("a dropped holder has blocks")
	}
}
