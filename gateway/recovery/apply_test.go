package recovery

import (
	"slices"
	"testing"

	"fleetdrill/gateway/index"
	"fleetdrill/gateway/index/maptree"
	"fleetdrill/internal/contract"
	"fleetdrill/internal/tokens"
)

// storeOf is a wire event of blocks that are one token long: hash h names token h.
func storeOf(parent any, hashes ...uint64) any {
	ids := make([]uint32, len(hashes))
	for i, h := range hashes {
		ids[i] = uint32(h)
	}
	return map[string]any{"type": "BlockStored", "block_hashes": hashes, "parent_block_hash": parent,
		"token_ids": ids, "block_size": 1, "lora_id": nil, "medium": "GPU"}
}

func removalOf(hashes ...uint64) any {
	return map[string]any{"type": "BlockRemoved", "block_hashes": hashes, "medium": "GPU"}
}

// rank is an applier with its index.
type rank struct {
	*applier
	t *testing.T
}

func newRank(t *testing.T) rank {
	return rank{newApplier(Source{BlockSize: 1}, index.NewResidency(maptree.New())), t}
}

func (r rank) apply(list ...any) effect { return r.applier.apply(pack([]any{1.5, list, 0})) }

// holds checks which hashes are held, and that the chain of them is a prefix of score blocks.
func (r rank) holds(score int, hashes ...uint64) {
	r.t.Helper()
	var got, chain []uint64
	r.residency.Index().Each(0, func(m index.Membership) bool {
		got = append(got, m.Hash)
		return true
	})
	slices.Sort(got)
	if !slices.Equal(got, hashes) {
		r.t.Fatalf("held are %v, want %v", got, hashes)
	}
	for h := uint32(1); h < 10; h++ {
		chain = append(chain, tokens.ContentHash([]uint32{h}))
	}
	if got := r.residency.Index().Lookup(chain, nil); int(got[0]) != score {
		r.t.Fatalf("score %d, want %d", got[0], score)
	}
}

func TestOrphansWaitForTheirParent(t *testing.T) {
	r := newRank(t)
	r.apply(storeOf(nil, 1))
	// 4 hangs under 3, which hangs under 2, which nobody has announced. At the root they would be a prefix
	// of other requests.
	r.apply(storeOf(uint64(3), 4), storeOf(uint64(2), 3))
	r.holds(1, 1)
	if r.orphaned != 2 {
		t.Fatalf("%d orphans counted, want 2", r.orphaned)
	}
	r.apply(storeOf(uint64(1), 2))
	r.holds(4, 1, 2, 3, 4)
	if r.orphans.count != 0 || r.orphans.blocks != 0 || len(r.orphans.byHash) != 0 {
		t.Fatalf("left behind: %+v", r.orphans)
	}
}

func TestRemovalsReachOrphans(t *testing.T) {
	r := newRank(t)
	r.apply(storeOf(nil, 1), storeOf(uint64(2), 3, 4))
	if e := r.apply(removalOf(3), removalOf(99)); e.removed != 2 || e.unknown != 1 {
		t.Fatalf("%+v, want 2 removed of which 1 unknown", e)
	}
	r.apply(storeOf(uint64(1), 2))
	r.holds(2, 1, 2, 4) // 3 left a hole
}

func TestClearForgetsOrphans(t *testing.T) {
	r := newRank(t)
	r.apply(storeOf(uint64(2), 3))
	if e := r.apply([]any{"AllBlocksCleared"}); !e.cleared || e.count != 0 {
		t.Fatalf("%+v", e)
	}
	r.apply(storeOf(nil, 1, 2))
	r.holds(2, 1, 2)
}

func TestOrphansAreBounded(t *testing.T) {
	r := newRank(t)
	for h := range uint64(maxOrphans + 10) {
		r.apply(storeOf(uint64(1_000_000), 1000+h))
	}
	if r.orphans.count != maxOrphans || r.orphaned != maxOrphans+10 {
		t.Fatalf("%d of %d orphans kept, want %d", r.orphans.count, r.orphaned, maxOrphans)
	}
	r.clear()
	for parent := range uint64(3) {
		big := make([]uint64, maxOrphanBlocks/2)
		for i := range big {
			big[i] = parent<<32 + uint64(i) + 10
		}
		r.apply(storeOf(uint64(5_000_000), big...))
	}
	if r.orphans.count != 2 {
		t.Fatalf("%d large orphans kept, want 2", r.orphans.count)
	}
}

func TestUnreadablePayloadIsAnEmptyBatch(t *testing.T) {
	r := newRank(t)
	r.apply(storeOf(nil, 1))
	if e := r.applier.apply([]byte{0xc1}); e.stored+e.removed != 0 || e.count != 1 {
		t.Fatalf("%+v", e)
	}
	if n := r.norm.Drops()[contract.DropMalformed]; n != 1 {
		t.Fatalf("%d malformed, want 1", n)
	}
}

func TestRestartLearnsTheBlockSizeAnew(t *testing.T) {
	r := rank{newApplier(Source{}, index.NewResidency(maptree.New())), t}
	two := map[string]any{"type": "BlockStored", "block_hashes": []uint64{1}, "parent_block_hash": nil,
		"token_ids": []uint32{1, 2}, "block_size": 2, "lora_id": nil, "medium": "GPU"}
	r.apply(storeOf(nil, 7))
	if e := r.apply(two); e.count != 1 {
		t.Fatalf("%+v", e)
	}
	r.restart()
	if e := r.apply(two); e.count != 1 || r.residency.Digest(0) != tokens.DigestTerm(1) {
		t.Fatalf("%+v", e)
	}
}
