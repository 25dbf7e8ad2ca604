package chain

import (
	"unsafe"

	"fleetdrill/gateway/index"
)

var _ index.Accountant = (*Index)(nil)

// Usage implements index.Accountant. Counted are the slabs of runs, the chunks of the arena and the tables
// of names; records of holders and of twins are too few to matter.
func (x *Index) Usage() index.Usage {
	x.mu.Lock()
	total, unused := x.arena.words()
	u := index.Usage{Runs: x.runs.live.Load(), Blocks: x.nodes.Load()}
	slabs := len(*x.runs.slabs.Load())
	x.mu.Unlock()
	const runBytes = int64(unsafe.Sizeof(run{}))
	slots := 0
	for _, s := range x.holders.All() {
		if s != nil {
			s.mu.Lock()
			slots += cap(s.places.slots)
			s.mu.Unlock()
		}
	}
	u.Bytes = 8*total + int64(slabs)*slabRuns*runBytes + int64(slots)*int64(unsafe.Sizeof(slot{}))
	u.FreeBytes = 8*unused + (int64(slabs)*slabRuns-u.Runs-roots)*runBytes
	return u
}

// Walked implements index.Accountant. Writers wait meanwhile.
func (x *Index) Walked(chain []uint64) (runs int) {
	n := len(x.holders.All())
	words := (n + 63) / 64
	set, dst := alive{make([]uint64, words), make([]uint64, words)}, make(index.Scores, n)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.walk(chain, dst, set, func(visit) bool { runs++; return true })
	return max(runs-1, 0) // the root is none
}
