package mockworker

import (
	"testing"

	"fleetdrill/internal/contract"
)

// With a drawn seed no two ranks, workers or starts name the same block alike; with a given one all do.
func TestRandomHashSeed(t *testing.T) {
	for seed, alike := range map[string]bool{RandomHashSeed: false, "0": true} {
		seen := map[string]int{}
		for range 2 {
			f := start(t, func(c *Config) { c.HashSeed, c.DataParallelSize = seed, 2 })
			for _, rank := range []string{"0", "1"} {
				status, text := f.api("POST", "/v1/completions", `{"prompt":`+jsonOf(t, prompt(1, 16))+`,"max_tokens":1}`, "X-Data-Parallel-Rank", rank)
				if status != 200 {
					t.Fatalf("completion: %d %s", status, text)
				}
				blocks := jsonLines[contract.TruthBlock](f, "/admin/truth/blocks?set=announced&rank="+rank, new(contract.TruthBlocksHead))
				if len(blocks) != 1 {
					t.Fatalf("%d blocks, want 1", len(blocks))
				}
				seen[jsonOf(t, blocks[0].Hash)]++
			}
		}
		if want := map[bool]int{true: 1, false: 4}[alike]; len(seen) != want {
			t.Errorf("seed %s: %d different hashes of one block, want %d: %v", seed, len(seen), want, seen)
		}
	}
}
