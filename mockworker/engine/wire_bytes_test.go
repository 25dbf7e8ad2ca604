package engine_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fleetdrill/internal/tokens"
	"fleetdrill/mockworker/blockhash"
	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/truth"
	"fleetdrill/mockworker/wire"
)

// TestSameSeedSameBytes runs one load twice and compares what would go out on the wire, stamps included,
// and what each client is told; another seed must differ.
func TestSameSeedSameBytes(t *testing.T) {
	for name, change := range map[string]func(*engine.Config){
		"plain":    func(*engine.Config) {},
		"priority": func(c *engine.Config) { c.SchedulingPolicy, c.ReserveFullISL = engine.PolicyPriority, true },
		"window": func(c *engine.Config) {
			c.NumBlocks, c.RetentionInterval = 200, 64
			c.Groups = []engine.Group{
				{Kind: engine.KindSlidingWindow, Window: 40, BlockSize: 8}, {Kind: engine.KindFullAttention, BlockSize: 16},
			}
		},
		"host":           func(c *engine.Config) { c.HostBlocks, c.Watermark = 50, 0.02 },
		"described host": func(c *engine.Config) { c.HostBlocks, c.HostDescribed = 50, true },
	} {
		t.Run(name, func(t *testing.T) {
			first, said := play(t, 1, change)
			again, saidAgain := play(t, 1, change)
			if !bytes.Equal(first, again) {
				t.Error("the same seed published different bytes")
			}
			if diff := cmp.Diff(said, saidAgain); diff != "" {
				t.Errorf("the same seed said different things:\n%s", diff)
			}
			if other, _ := play(t, 2, change); bytes.Equal(first, other) {
				t.Error("another seed published the same bytes")
			}
		})
	}
}

// play serves 300 requests in a pool too small for them, some of them aborted, and returns every batch
// and output. What the truth folds from the bytes must be what the engine holds.
func play(t *testing.T, seed uint64, change func(*engine.Config)) (published []byte, said []string) {
	h, err := blockhash.New("sha256_cbor", "0")
	if err != nil {
		t.Fatal(err)
	}
	cfg := engine.Config{
		BlockSize: 16, NumBlocks: 60, MaxNumSeqs: 16, MaxNumBatchedTokens: 256, MaxModelLen: 1000,
		EnablePrefixCaching: true, Hasher: h, Seed: seed,
		Timing: engine.Timing{A: 600_000, B: 2200, C: 2800, D: 3, E: 0.21},
	}
	change(&cfg)
	e, err := engine.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	enc, err := wire.New("vllm-0.25", wire.Options{IntHashes: true})
	if err != nil {
		t.Fatal(err)
	}
	fold := truth.NewFold(cfg.BlockSize)
	load := rand.New(rand.NewPCG(7, 7)) // the load is the same whatever the engine's seed
	now, seq := int64(0), int64(0)
	for n := 0; ; {
		if n < 300 {
			addSome(t, e, load, now, n)
			n += 3
		}
		r := e.Step(now)
		if !r.Worked && n >= 300 {
			break
		}
		now = r.Until
		if len(r.Events) > 0 {
			from := len(published)
			published = enc.AppendBatch(published, float64(now)/1e9, r.Events)
			if err := fold.Apply(seq, now, published[from:]); err != nil {
				t.Fatal(err)
			}
			if seq++; seq%7 == 0 {
				compareWithFold(t, e, fold)
			}
		}
		for _, o := range r.Outputs {
			said = append(said, fmt.Sprintln(now, o.ID, o.Token, o.Index, o.Finish, o.CachedTokens))
		}
	}
	compareWithFold(t, e, fold)
	if c := e.Counters(); c.Preemptions == 0 || c.FinishedAbort == 0 || c.PrefixHits == 0 || cfg.HostBlocks > 0 && c.ExternalHits == 0 {
		t.Fatalf("the load exercises too little: %+v", c)
	}
	return published, said
}

// compareWithFold compares the hashes and copies of every tier and class, each with its groups together.
func compareWithFold(t *testing.T, e *engine.Engine, fold *truth.Fold) {
	t.Helper()
	held := map[string]map[uint64]int{}
	for b := range e.Blocks {
		name := truth.TierOf(b.Medium) + " " + truth.ClassOf(b.SpecKind)
		if held[name] == nil {
			held[name] = map[uint64]int{}
		}
		held[name][b.Hash.EventInt()] += b.Copies
	}
	announced := map[string]map[uint64]int{}
	sets, _ := fold.Sets()
	for _, s := range sets {
		for h, entry := range s.Blocks {
			if announced[s.Tier+" "+s.Class] == nil {
				announced[s.Tier+" "+s.Class] = map[uint64]int{}
			}
			announced[s.Tier+" "+s.Class][h] = int(entry.Copies)
		}
	}
	if diff := cmp.Diff(held, announced); diff != "" {
		t.Fatalf("held and announced differ (-held +announced):\n%s", diff)
	}
}

func addSome(t *testing.T, e *engine.Engine, load *rand.Rand, now int64, n int) {
	for i := n; i < n+3; i++ {
		prompt := make([]uint32, 20+load.IntN(200))
		family := uint32(load.IntN(5))
		for j := range prompt {
			prompt[j] = tokens.FirstWord + 1000*family + uint32(j)
		}
		r := engine.Request{ID: fmt.Sprint(i), Tokens: prompt, MaxTokens: 1 + load.IntN(200), Priority: i % 3}
		if err := e.Add(now, r); err != nil {
			t.Fatal(err)
		}
	}
	if n%9 == 0 {
		e.Abort(now, fmt.Sprint(load.IntN(n+1)))
	}
}
