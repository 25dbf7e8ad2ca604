package indextest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fleetdrill/gateway/events"
	"fleetdrill/gateway/index"
	"fleetdrill/internal/tokens"
	"fleetdrill/mockworker/blockhash"
	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/radix"
	"fleetdrill/oracle"
)

const (
	engineCount  = 3
	engineBlocks = 300 // of a pool: a fraction of what the prompts need, so that eviction never stops
	blockSize    = 4
	engineSteps  = 1500
)

// shape is a kind of engine whose stream is followed.
type shape struct {
	name string
	// tune changes an engine's configuration.
	tune func(c *engine.Config)
	// sglang engines keep a radix tree of pages.
	sglang bool
	// adapters: requests come with adapters and salts, too; SGLang's events do not tell adapters, so there
	// with salts only.
	adapters bool
	// windows: the engine's hits are not the leading blocks, so only memberships are compared.
	windows bool
	// host: blocks of the host tier come, at times without the one before, and can only be compared with
	// the engine's own.
	host bool
}

var shapes = []shape{
	{name: "vLLM"},
	{name: "vLLM with adapters and salts", adapters: true},
	{name: "SGLang", sglang: true},
	{name: "SGLang with salts", sglang: true, adapters: true},
	{name: "a window group beside a main one", windows: true, tune: func(c *engine.Config) {
		c.Groups = []engine.Group{{Kind: engine.KindFullAttention, BlockSize: blockSize}, {Kind: engine.KindSlidingWindow, Window: 32, BlockSize: blockSize}}
	}},
	{name: "a window alone", windows: true, tune: func(c *engine.Config) {
		c.Groups = []engine.Group{{Kind: engine.KindSlidingWindow, Window: 32, BlockSize: blockSize}}
	}},
	{name: "host tier", host: true, tune: func(c *engine.Config) { c.HostBlocks, c.HostDescribed = 200, true }},
}

// Engines feeds the events of mock engines, which share prompts and evict all the time, to an index made by
// make, with copies counted above it: vLLM and SGLang, adapters and salts, windows, a host tier, each with three
// ranks. After every step of an engine the index predicts, for a random prompt, exactly the blocks that the
// engine itself finds; at times every membership is compared, with the engine's own set and with the reference.
func Engines(t *testing.T, make func() index.Index) {
	for _, s := range shapes {
		t.Run(s.name, func(t *testing.T) { follow(t, s, make()) })
	}
}

func follow(t *testing.T, s shape, ix index.Index) {
	f := newFleet(t, s, ix)
	for step := range engineSteps {
		h := f.rng.IntN(engineCount)
		f.request(h)
		f.step(index.Holder(h))
		if step%100 == 99 {
			f.compare()
		}
	}
	if f.hits == 0 && !s.windows || f.evicted == 0 {
		t.Fatalf("%d hits were predicted, %d blocks evicted: the engines did not do what this is about", f.hits, f.evicted)
	}
}

// prompt is what may be asked.
type prompt struct {
	ids        []uint32
	lora, salt string
}

// fleet is the engines, what they may be asked, and the index and the reference that follow them.
type fleet struct {
	*testing.T
	shape
	rng       *rand.Rand
	engines   [engineCount]engine.Core
	norms     [engineCount]*events.Normalizer
	now       int64
	prompts   []prompt
	residency *index.Residency
	ref       *oracle.Reference
	asked     int
	// hits are blocks that were predicted, evicted those that were removed.
	hits, evicted int
	scores        index.Scores
}

func newFleet(t *testing.T, s shape, ix index.Index) *fleet {
	t.Helper()
	f := &fleet{T: t, shape: s, rng: rand.New(rand.NewPCG(1, 1)), residency: index.NewResidency(ix), ref: oracle.NewReference(8)}
	for i := range f.engines {
		e, err := newEngine(s, i)
		if err != nil {
			t.Fatal(err)
		}
		f.engines[i], f.norms[i] = e, events.NewNormalizer(blockSize)
	}
	for range 40 {
		f.prompts = append(f.prompts, f.newPrompt())
	}
	return f
}

func newEngine(s shape, rank int) (engine.Core, error) {
	profile, err := engine.LoadProfile("fast")
	if err != nil {
		return nil, err
	}
	c := engine.Config{Rank: rank, BlockSize: blockSize, NumBlocks: engineBlocks, MaxNumSeqs: 8, MaxNumBatchedTokens: 256,
		MaxModelLen: 1024, EnablePrefixCaching: true, Hasher: blockhash.NewSGLang(), Timing: profile.Timing(), Seed: uint64(rank)}
	if s.sglang {
		return radix.New(radix.Config{Config: c})
	}
	if c.Hasher, err = blockhash.New("xxhash_cbor", fmt.Sprint(rank)); err != nil {
		return nil, err
	}
	if s.tune != nil {
		s.tune(&c)
	}
	return engine.New(c)
}

// newPrompt often begins as an earlier one.
func (f *fleet) newPrompt() (p prompt) {
	if len(f.prompts) > 0 && f.rng.IntN(4) > 0 {
		p = f.prompts[f.rng.IntN(len(f.prompts))]
		p.ids = append([]uint32(nil), p.ids[:f.rng.IntN(len(p.ids))]...)
	}
	for range 10 + f.rng.IntN(150) {
		p.ids = append(p.ids, tokens.FirstWord+uint32(f.rng.IntN(1000)))
	}
	p.ids = p.ids[:min(len(p.ids), 400)]
	if f.adapters {
		if !f.sglang {
			p.lora = []string{"", "", "sql", "law"}[f.rng.IntN(4)]
		}
		p.salt = []string{"", "", "tenant-a"}[f.rng.IntN(3)]
	}
	return p
}

// request asks an engine for a prompt, at times for one that is aborted at once.
func (f *fleet) request(h int) {
	if f.engines[h].Load().Waiting > 4 {
		return
	}
	f.asked++
	id := fmt.Sprint(f.asked)
	p := f.prompts[f.rng.IntN(len(f.prompts))]
	r := engine.Request{ID: id, Tokens: p.ids, MaxTokens: 1 + f.rng.IntN(30), LoRAName: p.lora, CacheSalt: p.salt}
	if p.lora != "" {
		r.LoRAID = len(p.lora)
	}
	if err := f.engines[h].Add(f.now, r); err != nil {
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
	if f.host {
		for _, ev := range res.Events {
			f.tiered(h, ev)
		}
	} else {
		f.normalized(h, res.Events)
	}
	if !f.windows {
		f.predict(h)
	}
}

func (f *fleet) predict(h index.Holder) {
	p := f.prompts[f.rng.IntN(len(f.prompts))]
	chain := tokens.AppendChain(nil, p.ids, blockSize, tokens.Namespace("", p.lora, p.salt))
	f.scores = f.residency.Index().Lookup(chain, f.scores)
	got := 0
	if int(h) < len(f.scores) {
		got = int(f.scores[h])
	}
	// What only the host has counts for the index and not for this.
	if want := f.engines[h].Match(p.ids, p.lora, p.salt); got != want && (!f.host || got < want) {
		f.Fatalf("the index predicts %d blocks at engine %d, which finds %d", got, h, want)
	}
	f.hits += got
}

// normalized follows a step's events as the gateway does.
func (f *fleet) normalized(h index.Holder, list []engine.Event) {
	batch := events.Batch{Rank: int(h)}
	for _, ev := range list {
		batch.Events = append(batch.Events, wireless(ev))
	}
	for _, op := range f.norms[h].Normalize(&batch) {
		switch op.Kind {
		case events.Stored:
			f.ref.Store(uint32(h), op.Parent, op.HasParent, op.Hashes, op.Contents)
			if f.residency.Store(h, op.Parent, op.HasParent, op.Hashes, op.Contents).UnknownParent && !f.windows {
				f.Fatalf("engine %d stored under a block that the index does not have", h)
			}
		case events.Removed:
			_, want := f.ref.Remove(uint32(h), op.Hashes)
			removed, unknown := f.residency.Remove(h, op.Hashes)
			if f.evicted += removed; unknown != want || unknown > 0 && !f.windows {
				f.Fatalf("engine %d removed %d blocks that the index does not have, and %d the reference", h, unknown, want)
			}
		case events.Cleared:
			f.ref.Clear(uint32(h))
			f.residency.Clear(h)
		}
	}
}

// wireless is an engine's event as a subscriber decodes it, without the wire in between.
func wireless(ev engine.Event) events.Event {
	out := events.Event{Kind: events.Stored, Medium: ev.Medium, HasGroup: ev.Group >= 0, Group: int64(ev.Group),
		SpecKind: ev.SpecKind, Window: int64(ev.SpecWindow), Tokens: ev.Tokens, BlockSize: ev.BlockSize,
		LoRAName: ev.LoRAName, Salt: ev.CacheSalt, Locality: ev.Locality, Owner: ev.Ownership, Hashes: eventHashes(ev)}
	switch ev.Kind {
	case engine.Removed:
		out.Kind = events.Removed
	case engine.Cleared:
		out.Kind = events.Cleared
	}
	if ev.Parent != nil {
		out.Parent, out.HasParent = ev.Parent.EventInt(), true
	}
	if ev.LoRAID != nil {
		out.LoRAID = int64(*ev.LoRAID)
	}
	return out
}

func eventHashes(ev engine.Event) (hashes []uint64) {
	for _, d := range ev.Hashes {
		hashes = append(hashes, d.EventInt())
	}
	return hashes
}

// tiered follows an event of an engine with a host tier: a host store whose parent is in no tier any more is
// dropped, as the gateway drops it.
func (f *fleet) tiered(h index.Holder, ev engine.Event) {
	hashes, tier := eventHashes(ev), index.Device
	if ev.Medium == engine.MediumCPU {
		tier = index.Host
	}
	switch ev.Kind {
	case engine.Stored:
		var parent uint64
		if ev.Parent != nil {
			parent = ev.Parent.EventInt()
		}
		contents := tokens.AppendChain(nil, ev.Tokens, ev.BlockSize, 0)
		if f.residency.StoreTier(h, tier, parent, ev.Parent != nil, hashes, contents).UnknownParent && tier == index.Device {
			f.Fatalf("engine %d stored under a block that the index does not have", h)
		}
	case engine.Removed:
		removed, unknown := f.residency.RemoveTier(h, tier, hashes)
		if f.evicted += removed; unknown > 0 && tier == index.Device {
			f.Fatalf("engine %d removed a block that the index does not have", h)
		}
	case engine.Cleared:
		f.residency.Clear(h)
	}
}

// compare compares every membership.
func (f *fleet) compare() {
	for h := range index.Holder(engineCount) {
		got := map[uint64]oracle.Block{}
		f.residency.Index().Each(h, func(m index.Membership) bool {
			got[m.Hash] = oracle.Block{Hash: m.Hash, Position: m.Position, Content: m.Content}
			return true
		})
		if !f.host {
			if diff := cmp.Diff(f.ref.Blocks(uint32(h)), got); diff != "" {
				f.Fatalf("engine %d (-reference +index):\n%s", h, diff)
			}
		}
		f.compareOwn(h, got)
	}
}

// compareOwn compares with the engine's own blocks: of the group that counts, and of a host tier at least
// those that the device has and at most those of both.
func (f *fleet) compareOwn(h index.Holder, got map[uint64]oracle.Block) {
	own, optional := map[uint64]oracle.Block{}, map[uint64]bool{}
	f.engines[h].Blocks(func(b engine.Block) bool {
		if b.Group > 0 {
			return true
		}
		hash := b.Hash.EventInt()
		if b.Medium == engine.MediumCPU {
			if _, there := own[hash]; there {
				return true
			}
			optional[hash] = true
		} else {
			delete(optional, hash)
		}
		own[hash] = oracle.Block{Hash: hash, Position: b.Position, Content: b.Content}
		return true
	})
	for hash := range optional {
		if _, there := got[hash]; !there {
			delete(own, hash)
		} else {
			own[hash] = got[hash] // a host tier does not know positions
		}
	}
	if diff := cmp.Diff(own, got); diff != "" {
		f.Fatalf("engine %d (-own +index):\n%s", h, diff)
	}
}
