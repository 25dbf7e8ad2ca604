package bench

import (
	"fmt"
	"runtime"

	"fleetdrill/gateway/index"
	"fleetdrill/internal/rng"
	"fleetdrill/replayer/bench/drive"
)

// MemorySpec fills an index with chains of Blocks blocks until it has Memberships, each chain on MinHolders to
// MaxHolders of Workers holders.
type MemorySpec struct {
	Index       string `json:"index"`
	Workers     int    `json:"workers"`
	MinHolders  int    `json:"min_holders"`
	MaxHolders  int    `json:"max_holders"`
	Blocks      int    `json:"blocks"`
	Memberships int    `json:"memberships"`
	Seed        uint64 `json:"seed"`
}

// MemoryShapes are the two that are reported: every worker on every chain, and one to four.
func MemoryShapes(name string) []MemorySpec {
	wide := MemorySpec{Index: name, Workers: 128, MinHolders: 128, MaxHolders: 128, Blocks: 256, Memberships: 1 << 21, Seed: 1}
	few := wide
	few.MinHolders, few.MaxHolders = 1, 4
	return []MemorySpec{wide, few}
}

// MemoryRow is what an index takes.
type MemoryRow struct {
	Index           string `json:"index"`
	HoldersPerChain string `json:"holders_per_chain"`
	Memberships     int64  `json:"memberships"`
	Blocks          int64  `json:"blocks"` // distinct
	// HeapBytes is by how much the heap grew, SlabBytes what the index counts itself, FreeBytes what of that
	// it keeps unused; 0 and 0 for one that does not count.
	HeapBytes int64 `json:"heap_bytes"`
	SlabBytes int64 `json:"slab_bytes"`
	FreeBytes int64 `json:"free_bytes"`
	// The same by membership.
	HeapPerMembership float64 `json:"bytes_per_membership"`
	SlabPerMembership float64 `json:"slab_bytes_per_membership"`
	// AfterClear is what is left of the heap's growth when every holder was cleared.
	AfterClear int64 `json:"heap_bytes_after_clear"`
}

// Memory fills an index in this process.
func Memory(s MemorySpec) (*MemoryRow, error) {
	if !bounded([3]int{s.Workers, 1, 1024}, [3]int{s.MaxHolders, 1, s.Workers}, [3]int{s.MinHolders, 1, s.MaxHolders}, [3]int{s.Blocks, 1, 1 << 16}, [3]int{s.Memberships, 1, 1 << 30}) {
		return nil, fmt.Errorf("filling an index with %+v: a figure is out of its bounds", s)
	}
	draw := rng.Stream(s.Seed, "bench/memory")
	before := drive.SettledHeap()
	ix, err := drive.Make(s.Index)
	if err != nil {
		return nil, err
	}
	for n := 0; n < s.Memberships; {
		var c chain
		c.extend(draw, s.Blocks)
		holders := s.MinHolders + draw.IntN(s.MaxHolders-s.MinHolders+1)
		first := draw.IntN(s.Workers)
		for i := range holders {
			c.store(ix, index.Holder((first+i)%s.Workers), 0, len(c.hashes))
		}
		n += holders * s.Blocks
	}
	stats := ix.Stats()
	row := &MemoryRow{Index: s.Index, HoldersPerChain: fmt.Sprint(s.MaxHolders), Memberships: stats.Memberships, Blocks: stats.Nodes,
		HeapBytes: int64(drive.SettledHeap()) - int64(before)}
	if s.MinHolders < s.MaxHolders {
		row.HoldersPerChain = fmt.Sprintf("%d-%d", s.MinHolders, s.MaxHolders)
	}
	if a, ok := ix.(index.Accountant); ok {
		u := a.Usage()
		row.SlabBytes, row.FreeBytes = u.Bytes, u.FreeBytes
	}
	if stats.Memberships > 0 {
		row.HeapPerMembership = float64(row.HeapBytes) / float64(stats.Memberships)
		row.SlabPerMembership = float64(row.SlabBytes) / float64(stats.Memberships)
	}
	for h := range s.Workers {
		ix.Clear(index.Holder(h))
	}
	row.AfterClear = int64(drive.SettledHeap()) - int64(before)
	runtime.KeepAlive(ix)
	return row, nil
}
