package admin

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fleetdrill/internal/contract"
	"fleetdrill/mockworker/blockhash"
	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/radix"
	"fleetdrill/mockworker/truth"
	"fleetdrill/mockworker/wire"
)

// TestTakingBackTheRunningStep: what an engine held before a step is what it holds within it, less what the
// step's events say, in every tier and class; and the sums say so too.
func TestTakingBackTheRunningStep(t *testing.T) {
	for name, change := range map[string]func(*engine.Config){
		"SGLang": func(c *engine.Config) { c.Hasher, c.HostBlocks = blockhash.NewSGLang(), 20 },
		"plain":  func(*engine.Config) {},
		"host":   func(c *engine.Config) { c.HostBlocks = 20 },
		"window": func(c *engine.Config) {
			c.NumBlocks = 90
			c.Groups = []engine.Group{
				{Kind: engine.KindSlidingWindow, Window: 20, BlockSize: 8}, {Kind: engine.KindFullAttention, BlockSize: 8},
				{Kind: engine.KindSlidingWindow, Window: 40, BlockSize: 8},
			}
		},
	} {
		t.Run(name, func(t *testing.T) { takeBack(t, change) })
	}
}

func takeBack(t *testing.T, change func(*engine.Config)) {
	h, err := blockhash.New("xxhash_cbor", "0")
	if err != nil {
		t.Fatal(err)
	}
	cfg := engine.Config{
		BlockSize: 8, NumBlocks: 30, MaxNumSeqs: 4, MaxNumBatchedTokens: 64, MaxModelLen: 200, EnablePrefixCaching: true, Hasher: h,
	}
	change(&cfg)
	e, profile := coreOf(t, cfg, h)
	enc, err := wire.New(profile, wire.Options{IntHashes: true})
	if err != nil {
		t.Fatal(err)
	}
	fold := truth.NewFold(cfg.BlockSize)
	load := rand.New(rand.NewPCG(3, 3))
	removals := 0
	for step := range 400 {
		prompt := make([]uint32, 10+load.IntN(60))
		for i := range prompt {
			prompt[i] = uint32(1000*load.IntN(2)*(i/24) + i + 100*(step%5)) // five heads, tails that differ
		}
		r := engine.Request{ID: fmt.Sprint(step), Tokens: prompt, MaxTokens: 1 + load.IntN(5), ReportFull: step%7 == 0}
		if err := e.Add(0, r); err != nil {
			t.Fatal(err)
		}
		said := byKey(announcedRows(allOf(fold)))
		before := places(t, fold, e, nil, said)
		pending := e.Step(0).Events
		if diff := cmp.Diff(before, places(t, fold, e, pending, said)); diff != "" {
			t.Fatalf("step %d (-before +within, taken back):\n%s", step, diff)
		}
		if len(pending) == 0 {
			continue
		}
		for i := range pending {
			if pending[i].Kind == engine.Removed {
				removals++
			}
		}
		if err := fold.Apply(int64(step), 0, enc.AppendBatch(nil, 0, pending)); err != nil {
			t.Fatal(err)
		}
	}
	if removals < 100 {
		t.Errorf("only %d removals were taken back", removals)
	}
}

// coreOf is an engine of the family that the hasher is of, past the clear that it may begin with.
func coreOf(t *testing.T, cfg engine.Config, vllm *blockhash.Hasher) (e engine.Core, profile string) {
	var err error
	if cfg.Hasher == vllm {
		e, err = engine.New(cfg)
		profile = "vllm-0.32"
	} else if e, err = radix.New(radix.Config{Config: cfg}); err == nil {
		e.Step(0)
		profile = "sglang-map"
	}
	if err != nil {
		t.Fatal(err)
	}
	return e, profile
}

func allOf(fold *truth.Fold) []truth.Set {
	sets, _ := fold.Sets()
	return sets
}

// places are the blocks held with their copies, by tier, class and hash, and the counts that the summary has.
func places(t *testing.T, fold *truth.Fold, e engine.Core, pending []engine.Event, said map[key]contract.TruthBlock) map[string]int {
	t.Helper()
	h, ok := holdingOf(fold, pending)
	if !ok {
		t.Fatal("the pending events cannot be taken back")
	}
	out := map[string]int{}
	for _, b := range h.rows(e, said) {
		if b.Tier == truth.TierHost {
			b.Position = 0 // of what the step removed nobody told it
		}
		out[fmt.Sprint(b.Tier, b.Class, b.Hash, " at ", b.Position)] = b.Copies
	}
	h, _ = holdingOf(fold, pending)
	for _, r := range h.hashes(e) {
		out[r.Tier+r.Class] = len(r.Hashes)
	}
	summer, ok := e.(engine.Summer)
	if !ok {
		return out
	}
	for _, s := range summer.Sums(len(pending) > 0) {
		out[fmt.Sprint("sum ", s.Medium, s.Group)] = s.Blocks
		out[fmt.Sprint("digest ", s.Medium, s.Group)] = int(s.Digest)
	}
	return out
}
