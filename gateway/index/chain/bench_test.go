package chain

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"fleetdrill/gateway/index"
	"fleetdrill/gateway/index/crtc"
	"fleetdrill/gateway/index/maptree"
	"fleetdrill/gateway/index/positional"
	"fleetdrill/gateway/index/sharded"
)

// The benchmarks run both indexes, so that one run compares them:
//
//	go test -bench . -benchtime 2s ./gateway/index/chain
var contestants = []struct {
	name string
	make func() index.Index
}{
	{"chain", func() index.Index { return New() }},
	{"sharded2", func() index.Index { return sharded.New(2, func() index.Index { return New() }) }},
	{"crtc", func() index.Index { return crtc.New() }},
	{"positional", func() index.Index { return positional.New() }},
	{"maptree", func() index.Index { return maptree.New() }},
}

const (
	benchHolders = 128
	benchHead    = 64  // blocks that all chains share
	benchDepth   = 268 // blocks of a chain
)

// benchChains are chains with one head.
func benchChains(n int) [][]uint64 {
	rng := rand.New(rand.NewPCG(1, 2))
	head := make([]uint64, benchHead)
	for i := range head {
		head[i] = rng.Uint64()
	}
	out := make([][]uint64, n)
	for i := range out {
		out[i] = slices.Clone(head)
		for len(out[i]) < benchDepth {
			out[i] = append(out[i], rng.Uint64())
		}
	}
	return out
}

// names are the engine hashes of a chain: one engine, one hash per chain up to the block.
func names(chain []uint64) []uint64 {
	out := make([]uint64, len(chain))
	var state uint64
	for i, c := range chain {
		state = (state ^ c) * golden
		out[i] = state
	}
	return out
}

// resident is how many chains a holder has: 13,000 blocks of its own and the head.
const resident = 64

// fill gives holder h the chains 8h..8h+63 of 1087, as an engine does: the hit is not stored.
func fill(ix index.Index) (chains, hashes [][]uint64) {
	chains = benchChains(8*(benchHolders-1) + resident)
	for _, c := range chains {
		hashes = append(hashes, names(c))
	}
	for h := range index.Holder(benchHolders) {
		ix.Store(h, 0, false, hashes[0][:benchHead], chains[0][:benchHead])
		for i := range resident {
			c := 8*int(h) + i
			ix.Store(h, hashes[c][benchHead-1], true, hashes[c][benchHead:], chains[c][benchHead:])
		}
	}
	return chains, hashes
}

// BenchmarkStoreRemove evicts a chain's own blocks, last first, and stores those of another, so that each
// holder's number of chains stays the same. A block op is one stored or removed block.
func BenchmarkStoreRemove(b *testing.B) {
	for _, c := range contestants {
		b.Run(c.name, func(b *testing.B) {
			ix := c.make()
			chains, hashes := fill(ix)
			scratch := make([]uint64, benchDepth-benchHead)
			i, ops, before := 0, 0, cpuTime(b)
			for b.Loop() {
				h, turn := index.Holder(i%benchHolders), i/benchHolders
				out := (8*int(h) + turn) % len(chains)
				in := (out + resident) % len(chains)
				copy(scratch, hashes[out][benchHead:])
				slices.Reverse(scratch)
				if removed, _ := ix.Remove(h, scratch); removed != len(scratch) {
					b.Fatalf("%d of %d were held", removed, len(scratch))
				}
				ix.Store(h, hashes[in][benchHead-1], true, hashes[in][benchHead:], chains[in][benchHead:])
				ops += 2 * len(scratch)
				i++
			}
			b.ReportMetric(float64(ops)/b.Elapsed().Seconds()/1e6, "Mblockops/s")
			b.ReportMetric(float64(ops)/(cpuTime(b)-before).Seconds()/1e6, "Mblockops/cpu-s")
		})
	}
}

// cpuTime is what this process has used, collector included. Beside other work on the machine it says more
// than time does.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkLanes is the same with as many writers as processors, each with holders of its own.
func BenchmarkLanes(b *testing.B) {
	for _, c := range contestants {
		b.Run(c.name, func(b *testing.B) {
			ix := c.make()
			chains, hashes := fill(ix)
			var lane atomic.Uint32
			lanes := index.Holder(runtime.GOMAXPROCS(0))
			b.RunParallel(func(pb *testing.PB) {
				own := index.Holder(lane.Add(1) - 1)
				scratch := make([]uint64, benchDepth-benchHead)
				for i := index.Holder(0); pb.Next(); i++ {
					h, turn := (i*lanes+own)%benchHolders, i*lanes/benchHolders
					out := int(8*h+turn) % len(chains)
					in := (out + resident) % len(chains)
					copy(scratch, hashes[out][benchHead:])
					slices.Reverse(scratch)
					ix.Remove(h, scratch)
					ix.Store(h, hashes[in][benchHead-1], true, hashes[in][benchHead:], chains[in][benchHead:])
				}
			})
			b.ReportMetric(float64(b.N*2*(benchDepth-benchHead))/b.Elapsed().Seconds()/1e6, "Mblockops/s")
		})
	}
}

// BenchmarkClear clears a holder of 2^17 blocks in 256 chains that seven others have too.
func BenchmarkClear(b *testing.B) {
	chains := make([][]uint64, 256)
	rng := rand.New(rand.NewPCG(9, 9))
	for i := range chains {
		for range 512 {
			chains[i] = append(chains[i], rng.Uint64())
		}
	}
	for _, c := range contestants {
		b.Run(c.name, func(b *testing.B) {
			ix := c.make()
			store := func(h index.Holder) {
				for _, chain := range chains {
					ix.Store(h, 0, false, names(chain), chain)
				}
			}
			for h := range index.Holder(7) {
				store(h)
			}
			for b.Loop() {
				b.StopTimer()
				store(7)
				b.StartTimer()
				ix.Clear(7)
			}
		})
	}
}

// BenchmarkDecode appends blocks one by one to a chain and evicts them again, as answers do.
func BenchmarkDecode(b *testing.B) {
	for _, c := range contestants {
		b.Run(c.name, func(b *testing.B) {
			ix := c.make()
			_, hashes := fill(ix)
			i := uint64(0)
			const blocks = 16
			for b.Loop() {
				h := index.Holder(i % benchHolders)
				parent := hashes[0][benchHead-1]
				var own [blocks]uint64
				for k := range uint64(blocks) {
					own[blocks-1-k] = (i*blocks + k + 1) * golden
					ix.Store(h, parent, true, own[blocks-1-k:blocks-k], []uint64{(i*blocks + k + 7) * golden})
					parent = own[blocks-1-k]
				}
				ix.Remove(h, own[:])
				i++
			}
			b.ReportMetric(float64(b.N)*2*blocks/b.Elapsed().Seconds()/1e6, "Mblockops/s")
		})
	}
}

// BenchmarkLookup looks chains up whose first 64 blocks every holder has.
func BenchmarkLookup(b *testing.B) {
	for _, c := range contestants {
		b.Run(c.name, func(b *testing.B) {
			ix := c.make()
			chains, _ := fill(ix)
			lookups(b, ix, chains)
		})
	}
}

// BenchmarkLookupBesideWriter is the same while one goroutine evicts and stores without a pause.
func BenchmarkLookupBesideWriter(b *testing.B) {
	for _, c := range contestants {
		b.Run(c.name, func(b *testing.B) {
			ix := c.make()
			chains, hashes := fill(ix)
			stop, done := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(done)
				rng := rand.New(rand.NewPCG(7, 7))
				scratch := make([]uint64, benchDepth)
				for {
					select {
					case <-stop:
						return
					default:
					}
					h, n := index.Holder(rng.IntN(benchHolders)), rng.IntN(len(chains))
					ix.Remove(h, append(scratch[:0], hashes[n][benchHead:]...))
					ix.Store(h, hashes[n][benchHead-1], true, hashes[n][benchHead:], chains[n][benchHead:])
				}
			}()
			lookups(b, ix, chains)
			close(stop)
			<-done
		})
	}
}

// BenchmarkLookupDeep looks up one chain of 512 blocks that all holders have to different depths.
func BenchmarkLookupDeep(b *testing.B) {
	for _, c := range contestants {
		b.Run(c.name, func(b *testing.B) {
			ix := c.make()
			chain := make([]uint64, 512)
			for i := range chain {
				chain[i] = uint64(i+1) * golden
			}
			for h := range index.Holder(benchHolders) {
				n := len(chain) - 2*int(h)
				ix.Store(h, 0, false, names(chain)[:n], chain[:n])
			}
			lookups(b, ix, [][]uint64{chain})
		})
	}
}

func lookups(b *testing.B, ix index.Index, chains [][]uint64) {
	var scores index.Scores
	times := make([]time.Duration, 0, 1<<20)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		start := time.Now()
		scores = ix.Lookup(chains[i%len(chains)], scores)
		if len(times) < cap(times) {
			times = append(times, time.Since(start))
		}
		i++
	}
	runtime.ReadMemStats(&after)
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Nanoseconds()), "p50-ns")
	b.ReportMetric(float64(times[len(times)*99/100].Nanoseconds()), "p99-ns")
	b.ReportMetric(float64(after.NumGC-before.NumGC), "gc-cycles")
}

// BenchmarkMemory fills an index and reports heap bytes per membership, with many and with one holder per
// chain, and how long a garbage collection takes with it.
func BenchmarkMemory(b *testing.B) {
	shapes := []struct {
		name    string
		holders int
	}{{"128-per-chain", 128}, {"1-per-chain", 1}}
	for _, shape := range shapes {
		for _, c := range contestants {
			b.Run(shape.name+"/"+c.name, func(b *testing.B) {
				for b.Loop() {
					memory(b, c.make, shape.holders)
				}
			})
		}
	}
}

func memory(b *testing.B, make func() index.Index, holders int) {
	const blocks = 1 << 20 // memberships
	rng := rand.New(rand.NewPCG(1, 1))
	before := heap()
	ix := make()
	chain, n := [256]uint64{}, 0
	for n < blocks {
		for i := range chain {
			chain[i] = rng.Uint64()
		}
		for h := range index.Holder(holders) {
			if holders == 1 {
				h = index.Holder(n / len(chain) % benchHolders)
			}
			ix.Store(h, 0, false, names(chain[:]), chain[:])
			n += len(chain)
		}
	}
	used := heap() - before
	start := time.Now()
	runtime.GC()
	b.ReportMetric(float64(time.Since(start).Microseconds()), "gc-us")
	b.ReportMetric(float64(used)/float64(n), "B/membership")
	runtime.KeepAlive(ix)
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// llmd is 2^20 blocks in 2,048 chains of 512.
func llmd() (chains, hashes [][]uint64) {
	rng := rand.New(rand.NewPCG(5, 5))
	for range 2048 {
		chain := make([]uint64, 512)
		for i := range chain {
			chain[i] = rng.Uint64()
		}
		chains, hashes = append(chains, chain), append(hashes, names(chain))
	}
	return chains, hashes
}

// BenchmarkLLMD is the shape that a Go peer publishes figures for: 512-block prompts over 1,048,576 blocks, each
// with all 8 holders or with 1; adds are memberships per second.
func BenchmarkLLMD(b *testing.B) {
	for _, holders := range []int{8, 1} {
		for _, c := range contestants {
			b.Run(fmt.Sprintf("%d/%s", holders, c.name), func(b *testing.B) {
				chains, hashes := llmd()
				before := heap()
				ix := c.make()
				start, cpu := time.Now(), cpuTime(b)
				for i, chain := range chains {
					for h := range holders {
						ix.Store(index.Holder((i+h)%8), 0, false, hashes[i], chain)
					}
				}
				adding, busy := time.Since(start), cpuTime(b)-cpu
				used := heap() - before
				lookups(b, ix, chains)
				n := float64(len(chains) * 512 * holders)
				b.ReportMetric(n/adding.Seconds()/1e6, "Madds/s")
				b.ReportMetric(n/busy.Seconds()/1e6, "Madds/cpu-s")
				b.ReportMetric(float64(used)/n, "B/membership")
				runtime.KeepAlive(ix)
			})
		}
	}
}
