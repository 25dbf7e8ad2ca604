package bench

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"fleetdrill/gateway/index"
	"fleetdrill/internal/rng"
	"fleetdrill/replayer/bench/drive"
)

// PeerSpec is the shape in which the index of llm-d-kv-cache was measured: a million blocks in prompts of 512,
// on all of eight holders or on one each.
type PeerSpec struct {
	Index   string `json:"index"`
	Holders int    `json:"holders"`
	// PerChain is how many of the holders have each chain: all or 1.
	PerChain int    `json:"per_chain"`
	Blocks   int    `json:"blocks"`
	Prompt   int    `json:"prompt"`
	Step     int    `json:"step"` // blocks of one store
	Lookups  int    `json:"lookups"`
	Seed     uint64 `json:"seed"`
}

// PeerShapes are the two that are reported.
func PeerShapes(name string, quick bool) []PeerSpec {
	all := PeerSpec{Index: name, Holders: 8, PerChain: 8, Blocks: 1 << 20, Prompt: 512, Step: 64, Lookups: 20_000, Seed: 1}
	if quick {
		all.Lookups = 4000
	}
	one := all
	one.PerChain = 1
	return []PeerSpec{all, one}
}

// PeerRow is what came of it.
type PeerRow struct {
	Index   string `json:"index"`
	Holders string `json:"holders"`
	Blocks  int    `json:"blocks"`
	// Lookup is a lookup with the scores of all holders, Beside the same while one goroutine evicts and
	// stores without a pause.
	Lookup drive.Latency `json:"lookup_us"`
	Beside drive.Latency `json:"lookup_beside_writer_us"`
	// Allocs and AllocBytes are per lookup.
	Allocs     float64 `json:"allocs_per_lookup"`
	AllocBytes float64 `json:"alloc_bytes_per_lookup"`
	// Adds are memberships per second while the index fills.
	Adds        float64 `json:"adds_per_s"`
	Memberships int64   `json:"memberships"`
	HeapBytes   float64 `json:"bytes_per_membership"`
	// ClearMs is how long clearing one holder took, of Cleared memberships.
	ClearMs float64       `json:"clear_ms"`
	Cleared int           `json:"cleared"`
	GC      drive.GC      `json:"gc"` // during the lookups beside the writer
	Foreign drive.Foreign `json:"foreign"`
}

// Peer measures in this process.
func Peer(s PeerSpec) (*PeerRow, error) {
	if !bounded([3]int{s.Holders, 1, 1024}, [3]int{s.PerChain, 1, s.Holders}, [3]int{s.Prompt, 1, 1 << 16}, [3]int{s.Blocks, s.Prompt, 1 << 28},
		[3]int{s.Step, 1, 1 << 16}, [3]int{s.Lookups, 1, 1 << 26}) {
		return nil, fmt.Errorf("measuring with %+v: a figure is out of its bounds", s)
	}
	draw := rng.Stream(s.Seed, "bench/peer")
	chains := make([]chain, s.Blocks/s.Prompt)
	for i := range chains {
		chains[i].extend(draw, s.Prompt)
	}
	lookups := make([]uint32, s.Lookups)
	before := drive.SettledHeap()
	ix, err := drive.Make(s.Index)
	if err != nil {
		return nil, err
	}
	foreign := drive.Watch()
	row := &PeerRow{Index: s.Index, Holders: fmt.Sprintf("%d of %d", s.PerChain, s.Holders), Blocks: s.Blocks}
	began := time.Now()
	for i := range chains {
		for k := range s.PerChain {
			chains[i].store(ix, index.Holder((i+k)%s.Holders), 0, s.Step)
		}
	}
	filled := time.Since(began)
	row.Memberships = ix.Stats().Memberships
	row.Adds = float64(row.Memberships) / filled.Seconds()
	if row.Memberships > 0 {
		row.HeapBytes = float64(int64(drive.SettledHeap())-int64(before)) / float64(row.Memberships)
	}
	row.alone(ix, chains, lookups, draw)
	row.beside(ix, chains, lookups, draw, s)
	row.Cleared = ix.Count(0)
	began = time.Now()
	ix.Clear(0)
	row.ClearMs = float64(time.Since(began).Nanoseconds()) / 1e6
	row.Foreign = foreign()
	return row, nil
}

// timed looks random chains up.
func timed(ix index.Index, chains []chain, ns []uint32, draw *rand.Rand, scores index.Scores) index.Scores {
	for i := range ns {
		c := &chains[draw.IntN(len(chains))]
		began := time.Now()
		scores = ix.Lookup(c.contents, scores)
		ns[i] = uint32(min(time.Since(began).Nanoseconds(), 1<<31))
	}
	return scores
}

// alone times lookups that nobody disturbs, and what they allocate.
func (row *PeerRow) alone(ix index.Index, chains []chain, ns []uint32, draw *rand.Rand) {
	scores := timed(ix, chains, ns[:min(len(ns), 100)], draw, nil)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	timed(ix, chains, ns, draw, scores)
	runtime.ReadMemStats(&after)
	// Below a hundredth it is the runtime's own doing, not the lookup's.
	row.Allocs = math.Floor(100*float64(after.Mallocs-before.Mallocs)/float64(len(ns))) / 100
	row.AllocBytes = math.Floor(float64(after.TotalAlloc-before.TotalAlloc) / float64(len(ns)))
	row.Lookup = drive.Distribution(ns)
}

// beside times lookups while a writer takes the last quarter of a chain from a holder and gives it back,
// without a pause.
func (row *PeerRow) beside(ix index.Index, chains []chain, ns []uint32, draw *rand.Rand, s PeerSpec) {
	var stop atomic.Bool
	var writer sync.WaitGroup
	writer.Go(func() {
		pick := rng.Stream(s.Seed, "bench/peer/writer")
		from := s.Prompt * 3 / 4
		gone := make([]uint64, s.Prompt-from)
		for !stop.Load() {
			i := pick.IntN(len(chains))
			h := index.Holder((i + pick.IntN(s.PerChain)) % s.Holders)
			copy(gone, chains[i].hashes[from:])
			ix.Remove(h, gone)
			chains[i].store(ix, h, from, s.Step)
		}
	})
	gc := drive.WatchGC()
	timed(ix, chains, ns, draw, nil)
	row.GC = gc()
	stop.Store(true)
	writer.Wait()
	row.Beside = drive.Distribution(ns)
}
