package engine

import (
	"fmt"
	"runtime"
	"testing"
	"unsafe"

	"fleetdrill/internal/tokens"
	"fleetdrill/mockworker/blockhash"
)

// decoding is an engine with n sequences of 1,000 prompt tokens in steady decode.
func decoding(tb testing.TB, n int) *Engine {
	h, err := blockhash.New("sha256", blockhash.DefaultSeed)
	if err != nil {
		tb.Fatal(err)
	}
	e, err := New(Config{
		BlockSize: 16, NumBlocks: 1 << 19, MaxNumSeqs: n, MaxNumBatchedTokens: 1 << 21, MaxModelLen: 1 << 30,
		EnablePrefixCaching: true, Hasher: h,
	})
	if err != nil {
		tb.Fatal(err)
	}
	prompt := make([]uint32, 1000)
	for i := range n {
		for j := range prompt {
			prompt[j] = tokens.FirstWord + uint32(i*1000+j)%150_000
		}
		r := Request{ID: fmt.Sprint(i), Tokens: prompt, MaxTokens: (1<<19)/n*16 - 1100}
		if err := e.Add(0, r); err != nil {
			tb.Fatal(err)
		}
	}
	for range 20 {
		e.Step(0)
	}
	return e
}

// BenchmarkStep is one step of 256 decoding sequences; a block of 16 tokens fills in every sixteenth.
func BenchmarkStep(b *testing.B) {
	const seqs = 256
	b.ReportAllocs()
	steps := 0
	var e *Engine
	for b.Loop() {
		if steps%20_000 == 0 { // before any sequence ends
			b.StopTimer()
			e = decoding(b, seqs)
			b.StartTimer()
		}
		if r := e.Step(0); len(r.Outputs) != seqs {
			b.Fatalf("%d outputs", len(r.Outputs))
		}
		steps++
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(steps*seqs), "ns/token")
}

// BenchmarkAdmit is a request of 1,000 prompt tokens from Add to its only token, with the prompt cached
// or not.
func BenchmarkAdmit(b *testing.B) {
	for name, stride := range map[string]uint32{"cached": 0, "new": 1000} {
		b.Run(name, func(b *testing.B) {
			e := decoding(b, 1)
			prompt := make([]uint32, 1000)
			b.ReportAllocs()
			n := uint32(0)
			for b.Loop() {
				for j := range prompt {
					prompt[j] = n*stride + uint32(j)
				}
				n++
				if err := e.Add(0, Request{ID: "x", Tokens: prompt, MaxTokens: 1}); err != nil {
					b.Fatal(err)
				}
				e.cfg.MaxNumSeqs = 2
				e.Step(0)
			}
		})
	}
}

// TestSteadyDecodeHardlyAllocates: what a step of 256 sequences allocates is the growth of their tokens and
// hashes, which doubles and so becomes rare.
func TestSteadyDecodeHardlyAllocates(t *testing.T) {
	e := decoding(t, 256)
	if n := testing.AllocsPerRun(200, func() { e.Step(0) }); n > 5 {
		t.Errorf("a step allocates %v times", n)
	}
}

// TestMemoryPerCachedBlock keeps the pool's share of a cached block within the goal of 80 bytes, with nothing
// on the heap that the pool does not account for.
func TestMemoryPerCachedBlock(t *testing.T) {
	const n = 1 << 16
	size := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := size()
	p := newPool(n+1, 1)
	for i := range n {
		id, _, _ := p.take()
		p.store(id, blockhash.FromInt(uint64(i)<<20|uint64(i)), 0, 0, 0, 0)
	}
	per := float64(size()-before) / n
	runtime.KeepAlive(p)
	if per > 80 {
		t.Errorf("%v bytes a cached block, block itself %d", per, unsafe.Sizeof(block{}))
	}
	t.Logf("%.1f bytes a cached block, block itself %d", per, unsafe.Sizeof(block{}))
}

// BenchmarkEvict is one block that enters a full pool of 16,384 blocks and throws another one out: two block
// events. Prompts of 1,000 blocks that nobody shares go through it.
func BenchmarkEvict(b *testing.B) {
	for _, c := range []struct {
		name   string
		change func(*Config)
	}{
		{"plain", func(*Config) {}},
		{"host", func(c *Config) { c.HostBlocks = 16_384 }},
		{"window", func(c *Config) {
			c.Groups = []Group{{Kind: KindFullAttention, BlockSize: 16}, {Kind: KindSlidingWindow, Window: 1024, BlockSize: 16}}
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			const blocks, size, seq = 16_384, 16, 1000
			h, err := blockhash.New("sha256", blockhash.DefaultSeed)
			if err != nil {
				b.Fatal(err)
			}
			cfg := Config{
				BlockSize: size, NumBlocks: blocks, MaxNumSeqs: 8, MaxNumBatchedTokens: 1 << 14, MaxModelLen: 1 << 20,
				EnablePrefixCaching: true, Hasher: h,
			}
			c.change(&cfg)
			e, err := New(cfg)
			if err != nil {
				b.Fatal(err)
			}
			prompt := make([]uint32, seq*size+1)
			events := 0
			serve := func(n int) {
				for j := range prompt {
					prompt[j] = uint32(n*len(prompt) + j)
				}
				if err := e.Add(0, Request{ID: "x", Tokens: prompt, MaxTokens: 1}); err != nil {
					b.Fatal(err)
				}
				for r := e.Step(0); r.Worked; r = e.Step(0) {
					for i := range r.Events {
						events += len(r.Events[i].Hashes)
					}
				}
			}
			n := 0
			for ; n < 40; n++ { // fill
				serve(n)
			}
			events = 0
			b.ReportAllocs()
			for b.Loop() {
				serve(n)
				n++
			}
			b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "block-events/s")
		})
	}
}
