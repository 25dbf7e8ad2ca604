package chain

import (
	"testing"

	"fleetdrill/gateway/index"
	"fleetdrill/gateway/index/sharded"
)

// A chain and a branch of it are two runs, whatever the holders; a lookup along the branch walks both.
func TestUsageCountsRuns(t *testing.T) {
	for name, x := range map[string]index.Accountant{
		"chain":     New(),
		"sharded:2": sharded.New(2, func() index.Index { return New() }),
	} {
		for _, h := range []index.Holder{0, 2} { // one shard of two
			x.Store(h, 0, false, []uint64{1, 2, 3}, []uint64{10, 20, 30})
			x.Store(h, 2, true, []uint64{4}, []uint64{40})
		}
		u := x.Usage()
		if u.Runs != 2 || u.Blocks != 4 {
			t.Errorf("%s: %d runs of %d blocks, want 2 of 4", name, u.Runs, u.Blocks)
		}
		// 8 names of 16 bytes, and at least one slab and one chunk that are nearly unused.
		if u.Bytes < 8*16+u.FreeBytes || u.FreeBytes <= 0 {
			t.Errorf("%s: %d bytes, %d of them free", name, u.Bytes, u.FreeBytes)
		}
		if n := x.Walked([]uint64{10, 20, 40}); n != 2 {
			t.Errorf("%s: %d runs walked along the branch, want 2", name, n)
		}
		if n := x.Walked([]uint64{11}); n != 0 {
			t.Errorf("%s: %d runs walked for an unknown chain", name, n)
		}
	}
}
