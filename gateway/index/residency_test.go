package index_test

import (
	"slices"
	"testing"

	"fleetdrill/gateway/index"
	"fleetdrill/gateway/index/chain"
	"fleetdrill/gateway/index/maptree"
	"fleetdrill/internal/tokens"
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

// A block is held while any tier has it, and a tier gives up only what it has.
func TestTiers(t *testing.T) {
	r := index.NewResidency(maptree.New())
	chain, names := []uint64{10, 11}, []uint64{1, 2}
	score := func() uint32 { return append(r.Index().Lookup(chain, nil), 0)[0] }
	steps := []struct {
		what             string
		do               func() (int, int)
		removed, unknown int
		score            uint32
	}{
		{"both on the device", func() (int, int) { r.Store(0, 0, false, names, chain); return 0, 0 }, 0, 0, 2},
		{"the host has none to give up", func() (int, int) { return r.RemoveTier(0, index.Host, []uint64{1, 2}) }, 0, 2, 2},
		{"both offloaded", func() (int, int) { r.StoreTier(0, index.Host, 0, false, names, chain); return 0, 0 }, 0, 0, 2},
		{"a demotion keeps what the host has", func() (int, int) { return r.Remove(0, []uint64{2}) }, 0, 0, 2},
		{"the device has no more of it", func() (int, int) { return r.Remove(0, []uint64{2}) }, 0, 1, 2},
		{"the host's goes, the device's stays", func() (int, int) { return r.RemoveTier(0, index.Host, []uint64{1}) }, 0, 0, 2},
		{"the host's was the last", func() (int, int) { return r.RemoveTier(0, index.Host, []uint64{2}) }, 1, 0, 1},
		{"new on the host alone", func() (int, int) { r.StoreTier(0, index.Host, 1, true, names[1:], chain[1:]); return 0, 0 }, 0, 0, 2},
		{"which the device cannot give up", func() (int, int) { return r.Remove(0, []uint64{9, 2, 1}) }, 1, 2, 0},
		{"nor can it twice", func() (int, int) { return r.RemoveTier(0, index.Host, []uint64{2, 2}) }, 1, 1, 0},
	}
	for _, s := range steps {
		removed, unknown := s.do()
		if removed != s.removed || unknown != s.unknown || score() != s.score {
			t.Errorf("%s: %d removed, %d unknown, score %d; want %d, %d, %d", s.what, removed, unknown, score(), s.removed, s.unknown, s.score)
		}
	}
	if r.Digest(0) != 0 || r.Index().Count(0) != 0 {
		t.Errorf("digest %x, %d held in the end", r.Digest(0), r.Index().Count(0))
	}
}

// The unknown hashes come behind the removed ones, whichever tier did not have them.
func TestUnknownOnesComeSecond(t *testing.T) {
	r := index.NewResidency(maptree.New())
	r.Store(0, 0, false, []uint64{1, 2, 3}, []uint64{10, 11, 12})
	r.StoreTier(0, index.Host, 3, true, []uint64{4}, []uint64{13})
	hashes := []uint64{4, 9, 3, 2}
	removed, unknown := r.Remove(0, hashes)
	if removed != 2 || unknown != 2 || hashes[0]+hashes[1] != 5 || hashes[2]+hashes[3] != 13 {
		t.Errorf("%d removed, %d unknown of %v", removed, unknown, hashes)
	}
}

// What is given up to stay below the bound is given up in every tier.
func TestShedIsOfEveryTier(t *testing.T) {
	x := chain.New()
	r := index.NewResidency(x)
	x.SetMaxBytes(20_000)
	for h := uint64(1); r.Shed(0) == 0; h++ {
		if h > 100_000 {
			t.Fatal("nothing was shed")
		}
		hashes := []uint64{h}
		r.StoreTier(0, index.Tier(h%2), 0, false, hashes, []uint64{h << 20})
		if h%3 == 0 {
			r.Attach(0, index.Host, hashes)
		}
	}
	var blocks [2]int
	var digests [2]uint64
	r.EachTier(0, func(m index.Membership, device, host bool) bool {
		for tier, has := range []bool{device, host} {
			if has {
				blocks[tier]++
				digests[tier] += tokens.DigestTerm(m.Hash)
			}
		}
		return true
	})
	for tier := range blocks {
		if n, digest := r.Sums(0, index.Tier(tier)); n == 0 || n != blocks[tier] || digest != digests[tier] {
			t.Errorf("tier %d: %d blocks and %x counted, %d and %x there", tier, n, digest, blocks[tier], digests[tier])
		}
	}
}

// A name is counted where its block is, and nowhere if the holder does not have it.
func TestAttach(t *testing.T) {
	r := index.NewResidency(maptree.New())
	r.Store(0, 0, false, []uint64{1, 2}, []uint64{10, 11})
	if unknown := r.Attach(0, index.Host, []uint64{7, 2, 8, 2}); !slices.Equal(unknown, []uint64{7, 8}) {
		t.Errorf("unknown are %v", unknown)
	}
	if unknown := r.Attach(index.MaxHolders, index.Host, []uint64{1}); len(unknown) != 1 {
		t.Error("a holder that cannot be has a block")
	}
	if n, digest := r.Sums(0, index.Host); n != 1 || digest != tokens.DigestTerm(2) {
		t.Errorf("%d blocks, %x on the host", n, digest)
	}
	r.Remove(0, []uint64{1, 2})
	for n := range 2 {
		if removed, unknown := r.RemoveTier(0, index.Host, []uint64{2}); removed != n || unknown != 0 {
			t.Errorf("copy %d: %d removed, %d unknown", n, removed, unknown)
		}
	}
}
