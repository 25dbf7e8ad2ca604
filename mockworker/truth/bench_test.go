package truth_test

import (
	"testing"

	"fleetdrill/internal/tokens"
	"fleetdrill/mockworker/blockhash"
	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/truth"
	"fleetdrill/mockworker/wire"
)

// BenchmarkApply is the fold of one batch of a full pool of 16,384 blocks: 64 removals, as an engine evicts them,
// and a store of 64 blocks. Cold, the caches hold other things before each batch, as in a worker that does
// more than fold. A block event is one hash.
//
//	go test ./mockworker/truth -run xxx -bench Apply -benchmem
func BenchmarkApply(b *testing.B) {
	for _, c := range []struct {
		name string
		wire string
		cold bool
	}{{"map", "vllm-0.25", false}, {"array", "vllm-0.23", false}, {"sglang", "sglang-array", false}, {"cold", "vllm-0.25", true}} {
		b.Run(c.name, func(b *testing.B) {
			batches := fullPool(b, c.wire)
			f := truth.NewFold(benchBlockSize)
			other := make([]byte, 64<<20)
			b.ReportAllocs()
			seq := int64(0)
			apply := func() {
				if err := f.Apply(seq, seq, batches[seq%int64(len(batches))]); err != nil {
					b.Fatal(err)
				}
				seq++
			}
			for range batches {
				apply()
			}
			b.ResetTimer()
			for range b.N {
				if c.cold {
					b.StopTimer()
					for i := 0; i < len(other); i += 64 {
						other[i]++
					}
					b.StartTimer()
				}
				apply()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(2*benchRun), "ns/blockevent")
		})
	}
}

const (
	benchBlockSize = 16
	benchRun       = 64
	benchPool      = 16_384
)

// fullPool is batches that go round: each removes the run, tail first, that was stored a pool's size before.
func fullPool(b *testing.B, profile string) (batches [][]byte) {
	enc, err := wire.New(profile, wire.Options{IntHashes: true})
	if err != nil {
		b.Fatal(err)
	}
	const runs = benchPool / benchRun
	digests := make([]blockhash.Digest, 2*benchPool)
	for i := range digests {
		digests[i] = blockhash.FromInt(tokens.DigestTerm(uint64(i)))
	}
	ids := make([]uint32, benchRun*benchBlockSize)
	for n := range 2 * runs {
		stored := digests[n*benchRun : (n+1)*benchRun]
		gone := (n + runs) % (2 * runs) * benchRun
		var events []engine.Event
		for i := benchRun - 1; i >= 0; i-- {
			events = append(events, engine.Event{Kind: engine.Removed, Hashes: digests[gone+i : gone+i+1], Medium: engine.MediumGPU})
		}
		for i := range ids {
			ids[i] = tokens.FirstWord + uint32(n*7919+i*31)%100_000
		}
		batches = append(batches, enc.AppendBatch(nil, 1, append(events, engine.Event{
			Kind: engine.Stored, Hashes: stored, Tokens: ids, BlockSize: benchBlockSize, Medium: engine.MediumGPU, SpecKind: "full_attention",
		})))
	}
	return batches
}
