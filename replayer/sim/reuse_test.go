package sim

import (
	"testing"

	"pgregory.net/rapid"

	"fleetdrill/mockworker/blockhash"
	"fleetdrill/oracle"
	"fleetdrill/replayer/plan"
	"fleetdrill/replayer/trace"
)

// Walking by ids counts what the model caches count block by block, for pools of any size.
func TestReuseByIDsIsReuseByBlocks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.SampledFrom([]int{32, 64, 128, 512}).Draw(t, "block size")
		pool := rapid.IntRange(0, 60).Draw(t, "pool")
		got := newReuse(size, pool)
		want := &blockReuse{blockSize: size, pooled: oracle.NewPooled(pool)}
		m := maker{blockhash.NewChain64(), size}
		var p prompt
		for range rapid.IntRange(1, 25).Draw(t, "rows") {
			ids := rapid.SliceOfN(rapid.Uint64Range(0, 2), 1, 4).Draw(t, "ids")
			cut := rapid.IntRange(0, trace.BlockTokens-1).Draw(t, "cut")
			q := &plan.Request{Row: trace.Row{IDs: ids}, PromptTokens: len(ids)*trace.BlockTokens - cut}
			m.fill(&p, q)
			a, b := got.serve(q, &p)
			c, d := want.serve(q, &p)
			if a != c || b != d {
				t.Fatalf("pooled %d, unbounded %d; by blocks %d and %d", a, b, c, d)
			}
		}
	})
}
