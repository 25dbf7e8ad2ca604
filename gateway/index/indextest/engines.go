package indextest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fleetdrill/gateway/index"
	"fleetdrill/internal/tokens"
	"fleetdrill/mockworker/blockhash"
	"fleetdrill/mockworker/engine"
	"fleetdrill/oracle"
)

const (
	engineCount  = 3
	engineBlocks = 300 // of a pool: a fraction of what the prompts need, so that eviction never stops
	blockSize    = 4
	engineSteps  = 1500
)

// Engines feeds the events of mock engines, which share prompts and evict all the time, to an index made by
// make, with copies counted above it. After every step of an engine the index predicts, for a random
// prompt, exactly the blocks that the engine itself finds; at times every membership is compared, with the
// engine's own set and with the reference.
func Engines(t *testing.T, make func() index.Index) {
	f := newFleet(t, make())
	for step := range engineSteps {
		h := f.rng.IntN(engineCount)
		f.request(h)
		f.step(index.Holder(h))
		if step%100 == 99 {
			f.compare()
		}
	}
	if f.hits == 0 || f.evicted == 0 {
		t.Fatalf("%d hits were predicted, %d blocks evicted: the engines did not do what this is about", f.hits, f.evicted)
	}
}

// fleet is the engines, what they may be asked, and the index and the reference that follow them.
type fleet struct {
	*testing.T
	rng       *rand.Rand
	engines   [engineCount]*engine.Engine
	now       int64
	prompts   [][]uint32
	residency *index.Residency
	ref       *oracle.Reference
	asked     int
	// hits are blocks that were predicted, evicted those that were removed.
	hits, evicted int
	scores        index.Scores
}

func newFleet(t *testing.T, ix index.Index) *fleet {
	t.Helper()
	f := &fleet{T: t, rng: rand.New(rand.NewPCG(1, 1)), residency: index.NewResidency(ix), ref: oracle.NewReference(8)}
	profile, err := engine.LoadProfile("fast")
	if err != nil {
		t.Fatal(err)
	}
	for i := range f.engines {
		h, err := blockhash.New("xxhash_cbor", fmt.Sprint(i))
		if err != nil {
			t.Fatal(err)
		}
		f.engines[i], err = engine.New(engine.Config{Rank: i, BlockSize: blockSize, NumBlocks: engineBlocks, MaxNumSeqs: 8,
			MaxNumBatchedTokens: 256, MaxModelLen: 1024, EnablePrefixCaching: true, Hasher: h, Timing: profile.Timing(), Seed: uint64(i)})
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 40 {
		var p []uint32
		if len(f.prompts) > 0 && f.rng.IntN(4) > 0 {
			from := f.prompts[f.rng.IntN(len(f.prompts))]
			p = append(p, from[:f.rng.IntN(len(from))]...)
		}
		for range 10 + f.rng.IntN(150) {
			p = append(p, tokens.FirstWord+uint32(f.rng.IntN(1000)))
		}
		f.prompts = append(f.prompts, p[:min(len(p), 400)])
	}
	return f
}

// request asks an engine for a prompt, at times for one that is aborted at once.
func (f *fleet) request(h int) {
	if f.engines[h].Load().Waiting > 4 {
		return
	}
	f.asked++
	id := fmt.Sprint(f.asked)
	p := f.prompts[f.rng.IntN(len(f.prompts))]
	if err := f.engines[h].Add(f.now, engine.Request{ID: id, Tokens: p, MaxTokens: 1 + f.rng.IntN(30)}); err != nil {
		f.Fatal(err)
	}
	if f.rng.IntN(20) == 0 {
		f.engines[h].Abort(f.now, id)
	}
}

// step runs one step, follows its events and predicts.
func (f *fleet) step(h index.Holder) {
	e := f.engines[h]
	res := e.Step(f.now)
	f.now = max(f.now+1, res.Until)
	for _, ev := range res.Events {
		f.follow(h, ev)
	}
	p := f.prompts[f.rng.IntN(len(f.prompts))]
	f.scores = f.residency.Index().Lookup(tokens.AppendChain(nil, p, blockSize, 0), f.scores)
	got := 0
	if int(h) < len(f.scores) {
		got = int(f.scores[h])
	}
	if want := e.Match(p, "", ""); got != want {
		f.Fatalf("the index predicts %d blocks at engine %d, which finds %d", got, h, want)
	}
	f.hits += got
}

func (f *fleet) follow(h index.Holder, ev engine.Event) {
	var hashes []uint64
	for _, d := range ev.Hashes {
		hashes = append(hashes, d.EventInt())
	}
	switch ev.Kind {
	case engine.Stored:
		var parent uint64
		if ev.Parent != nil {
			parent = ev.Parent.EventInt()
		}
		contents := tokens.AppendChain(nil, ev.Tokens, ev.BlockSize, 0)
		f.ref.Store(uint32(h), parent, ev.Parent != nil, hashes, contents)
		if f.residency.Store(h, parent, ev.Parent != nil, hashes, contents).UnknownParent {
			f.Fatalf("engine %d stored under a block that the index does not have", h)
		}
	case engine.Removed:
		f.ref.Remove(uint32(h), hashes)
		removed, unknown := f.residency.Remove(h, hashes)
		if f.evicted += removed; unknown > 0 {
			f.Fatalf("engine %d removed a block that the index does not have", h)
		}
	case engine.Cleared:
		f.ref.Clear(uint32(h))
		f.residency.Clear(h)
	}
}

// compare compares every membership.
func (f *fleet) compare() {
	for h := range index.Holder(engineCount) {
		own := map[uint64]oracle.Block{}
		f.engines[h].Blocks(func(b engine.Block) bool {
			own[b.Hash.EventInt()] = oracle.Block{Hash: b.Hash.EventInt(), Position: b.Position, Content: b.Content}
			return true
		})
		got := map[uint64]oracle.Block{}
		f.residency.Index().Each(h, func(m index.Membership) bool {
			got[m.Hash] = oracle.Block{Hash: m.Hash, Position: m.Position, Content: m.Content}
			return true
		})
		if diff := cmp.Diff(own, got); diff != "" {
			f.Fatalf("engine %d (-own +index):\n%s", h, diff)
		}
		if diff := cmp.Diff(f.ref.Blocks(uint32(h)), got); diff != "" {
			f.Fatalf("engine %d (-reference +index):\n%s", h, diff)
		}
	}
}
