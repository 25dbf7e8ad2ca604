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
	"fleetdrill/mockworker/wire"
)

// TestSameSeedSameBytes runs one load twice and compares what would go out on the wire, stamps included,
// and what each client is told; another seed must differ.
func TestSameSeedSameBytes(t *testing.T) {
	first, said := play(t, 1)
	again, saidAgain := play(t, 1)
	if !bytes.Equal(first, again) {
		t.Error("the same seed published different bytes")
	}
	if diff := cmp.Diff(said, saidAgain); diff != "" {
		t.Errorf("the same seed said different things:\n%s", diff)
	}
	if other, _ := play(t, 2); bytes.Equal(first, other) {
		t.Error("another seed published the same bytes")
	}
}

// play serves 300 requests in a pool too small for them, some of them aborted, and returns every batch
// and output.
func play(t *testing.T, seed uint64) (published []byte, said []string) {
	h, err := blockhash.New("sha256_cbor", "0")
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(engine.Config{
		BlockSize: 16, NumBlocks: 60, MaxNumSeqs: 16, MaxNumBatchedTokens: 256, MaxModelLen: 1000,
		EnablePrefixCaching: true, Hasher: h, Seed: seed,
		Timing: engine.Timing{A: 600_000, B: 2200, C: 2800, D: 3, E: 0.21},
	})
	if err != nil {
		t.Fatal(err)
	}
	enc, err := wire.New("vllm-0.25", wire.Options{IntHashes: true})
	if err != nil {
		t.Fatal(err)
	}
	load := rand.New(rand.NewPCG(7, 7)) // the load is the same whatever the engine's seed
	now := int64(0)
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
			published = enc.AppendBatch(published, float64(now)/1e9, r.Events)
		}
		for _, o := range r.Outputs {
			said = append(said, fmt.Sprintln(now, o.ID, o.Token, o.Index, o.Finish, o.CachedTokens))
		}
	}
	if c := e.Counters(); c.Preemptions == 0 || c.FinishedAbort == 0 || c.PrefixHits == 0 {
		t.Fatalf("the load exercises too little: %+v", c)
	}
	return published, said
}

func addSome(t *testing.T, e *engine.Engine, load *rand.Rand, now int64, n int) {
	for i := n; i < n+3; i++ {
		prompt := make([]uint32, 20+load.IntN(200))
		family := uint32(load.IntN(5))
		for j := range prompt {
			prompt[j] = tokens.FirstWord + 1000*family + uint32(j)
		}
		r := engine.Request{ID: fmt.Sprint(i), Tokens: prompt, MaxTokens: 1 + load.IntN(200)}
		if err := e.Add(now, r); err != nil {
			t.Fatal(err)
		}
	}
	if n%9 == 0 {
		e.Abort(now, fmt.Sprint(load.IntN(n+1)))
	}
}
