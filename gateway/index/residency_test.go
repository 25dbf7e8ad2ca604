package index_test

import (
	"testing"

	"fleetdrill/gateway/index"
	"fleetdrill/gateway/index/maptree"
)

// An engine that announces a hit chain on every hit never removes the extra copies. Counting stops at 8.
func TestCopiesAreCapped(t *testing.T) {
	r := index.NewResidency(maptree.New())
	for range 20 {
		r.Store(0, 0, false, []uint64{1}, []uint64{10})
	}
	for n := 1; n < 8; n++ {
		if removed, unknown := r.Remove(0, []uint64{1}); removed != 0 || unknown != 0 {
			t.Fatalf("removal %d of 8: %d removed, %d unknown", n, removed, unknown)
		}
	}
	if removed, _ := r.Remove(0, []uint64{1}); removed != 1 || r.Digest(0) != 0 {
		t.Fatalf("the eighth removal ended %d memberships, digest %x", removed, r.Digest(0))
	}
	if _, unknown := r.Remove(0, []uint64{1}); unknown != 1 {
		t.Fatal("the ninth removal was of something known")
	}
}

// A clear takes every copy: what is stored afterwards starts at one.
func TestClearForgetsCopies(t *testing.T) {
	r := index.NewResidency(maptree.New())
	for range 2 {
		r.Store(0, 0, false, []uint64{1}, []uint64{10})
	}
	r.Clear(0)
	r.Store(0, 0, false, []uint64{1}, []uint64{10})
	if removed, _ := r.Remove(0, []uint64{1}); removed != 1 {
		t.Fatal("a copy outlived the clear")
	}
}

// Asking about a holder does not make it.
func TestUnknownHolderHasNoDigest(t *testing.T) {
	if d := index.NewResidency(maptree.New()).Digest(7); d != 0 {
		t.Fatalf("digest %x", d)
	}
}
