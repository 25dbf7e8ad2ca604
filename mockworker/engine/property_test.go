package engine

import (
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"fleetdrill/internal/tokens"
	"fleetdrill/mockworker/blockhash"
)

// TestEngineProperties drives an engine with random requests, aborts, resets and steps, and after each step
// compares it with a model that knows only what went in and what came out.
func TestEngineProperties(t *testing.T) {
	h, err := blockhash.New("xxhash_cbor", "0")
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t, drawConfig(t, h))
		t.Repeat(map[string]func(*rapid.T){
			"add":   m.add,
			"abort": m.abort,
			"reset": m.reset,
			"drop":  m.drop,
			"step":  m.step,
			"steps": func(t *rapid.T) {
				for range 5 {
					m.step(t)
				}
			},
		})
		m.drain(t)
	})
}

func drawConfig(t *rapid.T, h *blockhash.Hasher) Config {
	c := Config{
		BlockSize:                 rapid.IntRange(1, 5).Draw(t, "block size"),
		NumBlocks:                 rapid.IntRange(2, 24).Draw(t, "blocks"),
		MaxNumSeqs:                rapid.IntRange(1, 5).Draw(t, "seqs"),
		MaxNumBatchedTokens:       rapid.IntRange(1, 20).Draw(t, "budget"),
		MaxModelLen:               60,
		SchedulingPolicy:          rapid.SampledFrom([]string{PolicyFCFS, PolicyPriority}).Draw(t, "policy"),
		LongPrefillTokenThreshold: rapid.SampledFrom([]int{0, 0, 3, 7}).Draw(t, "threshold"),
		ReserveFullISL:            rapid.Bool().Draw(t, "must fit"),
		Watermark:                 rapid.SampledFrom([]float64{0, 0, 0.1, 0.5}).Draw(t, "watermark"),
		EnablePrefixCaching:       rapid.IntRange(0, 9).Draw(t, "caching") > 0,
		Hasher:                    h,
		Timing:                    Timing{A: 1000, B: 7, C: 3, D: 0.5, E: 0.25},
		Seed:                      rapid.Uint64().Draw(t, "seed"),
	}
	c.Timing.Overhead = rapid.SampledFrom([]int64{0, 0, 0, 2500}).Draw(t, "overhead")
	switch rapid.SampledFrom([]string{"plain", "groups", "host"}).Draw(t, "cache") {
	case "groups":
		drawGroups(t, &c)
	case "host":
		c.HostBlocks = rapid.IntRange(1, 12).Draw(t, "host blocks")
		c.HostDescribed = rapid.Bool().Draw(t, "described")
	}
	return c
}

// drawGroups draws windows shorter and longer than prompts, and block sizes that do and do not divide the
// engine's.
func drawGroups(t *rapid.T, c *Config) {
	c.NumBlocks += rapid.IntRange(0, 60).Draw(t, "more blocks")
	common := c.BlockSize
	for range rapid.IntRange(1, 3).Draw(t, "groups") {
		g := Group{Kind: KindFullAttention, BlockSize: c.BlockSize}
		if rapid.Bool().Draw(t, "windowed") {
			g.Kind, g.Window = KindSlidingWindow, rapid.IntRange(1, 14).Draw(t, "window")
			g.BlockSize = rapid.SampledFrom([]int{c.BlockSize, 1, 2, 2 * c.BlockSize}).Draw(t, "group block size")
		}
		common = common / gcd(common, g.BlockSize) * g.BlockSize
		c.Groups = append(c.Groups, g)
	}
	c.RetentionInterval = common * rapid.IntRange(0, 3).Draw(t, "retention")
}

// model is what an observer outside may conclude.
type model struct {
	e       *Engine
	cfg     Config
	now     int64
	n       int
	live    map[string]*seen
	clearBy bool // a clear is waiting for a step to travel with

	// copies is the fold of all events; facts what the stores said of each block, as far as they did.
	copies map[place]int
	facts  map[place]Block
}

// place is a hash where it is cached: in a tier and a group.
type place struct {
	hash   blockhash.Digest
	medium string
	group  int
}

// seen is one request as the observer knows it.
type seen struct {
	Request
	added    int64
	computed int // tokens scheduled since the beginning, without the cached ones
	preempt  bool
	aborted  bool
	outputs  []uint32
}

func newModel(t *rapid.T, c Config) *model {
	e, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return &model{
		e: e, cfg: c, live: map[string]*seen{},
		copies: map[place]int{}, facts: map[place]Block{},
	}
}

// add draws prompts from few families, so that prefixes are shared, wholly and in part.
func (m *model) add(t *rapid.T) {
	family := rapid.Uint32Range(0, 2).Draw(t, "family")
	shared := rapid.IntRange(0, 25).Draw(t, "shared")
	own := rapid.IntRange(0, 6).Draw(t, "own")
	m.n++
	r := Request{
		ID: fmt.Sprint("r", m.n), MaxTokens: rapid.IntRange(1, 12).Draw(t, "output"),
		Priority: rapid.IntRange(-1, 1).Draw(t, "priority"), ReportFull: rapid.IntRange(0, 4).Draw(t, "report") == 0,
	}
	for i := range shared + own {
		id := 1000*family + uint32(i)
		if i >= shared {
			id += uint32(m.n) * 10_000
		}
		r.Tokens = append(r.Tokens, tokens.FirstWord+id)
	}
	if rapid.IntRange(0, 3).Draw(t, "namespace") == 0 {
		r.LoRAName, r.LoRAID = rapid.SampledFrom([]string{"", "adapter"}).Draw(t, "lora"), 1
		r.CacheSalt = rapid.SampledFrom([]string{"", "pepper"}).Draw(t, "salt")
	}
	blocks := (len(r.Tokens) + r.MaxTokens - 1 + m.cfg.BlockSize - 1) / m.cfg.BlockSize
	if len(m.cfg.Groups) > 0 {
		blocks = m.e.layout.most(len(r.Tokens)+r.MaxTokens-1, m.e.maxChunk)
	}
	fits := len(r.Tokens) > 0 && blocks <= m.cfg.NumBlocks-1 && len(r.Tokens)+r.MaxTokens <= m.cfg.MaxModelLen
	if err := m.e.Add(m.now, r); (err == nil) != fits {
		t.Fatalf("request of %d+%d tokens: %v", len(r.Tokens), r.MaxTokens, err)
	}
	if fits {
		m.live[r.ID] = &seen{Request: r, added: m.now}
	}
}

func (m *model) abort(t *rapid.T) {
	id := fmt.Sprint("r", rapid.IntRange(1, m.n+1).Draw(t, "victim"))
	s := m.live[id]
	want := s != nil && !s.aborted
	if got := m.e.Abort(m.now, id); got != want {
		t.Fatalf("Abort(%s) = %v, want %v", id, got, want)
	}
	if want {
		s.aborted = true
	}
}

func (m *model) reset(t *rapid.T) {
	if m.e.ResetPrefixCache(false) {
		m.clearBy = true
		for b := range m.e.Blocks {
			t.Fatalf("block %v after a reset", b)
		}
	}
}

// drop: nothing is cached or running, no event ever tells of what was, and whoever ran waits.
func (m *model) drop(t *rapid.T) {
	m.e.DropCache()
	clear(m.copies)
	m.clearBy = false
	for b := range m.e.Blocks {
		t.Fatalf("block %v after a drop", b)
	}
	if l := m.e.Load(); l.Running != 0 || l.KVUsage != 0 || l.Waiting != len(m.live) {
		t.Fatalf("%+v after a drop, %d requests live", l, len(m.live))
	}
	m.checkPool(t)
	m.checkLoad(t)
}

func (m *model) step(t *rapid.T) {
	toCompute, waited := m.toCompute(), m.e.waiting.len()
	preempted := m.e.counters.Preemptions
	r := m.e.Step(m.now)
	if toCompute > 0 && len(m.e.batch) == 0 {
		t.Fatalf("%d requests to compute and no pass", toCompute)
	}
	computes := len(m.e.batch) > 0
	if r.Until < m.now || r.Worked && !computes && r.Until > m.now && toCompute > 0 || computes && r.Until == m.now {
		t.Fatalf("step at %d until %d", m.now, r.Until)
	}
	m.checkBatch(t, m.e.counters.Preemptions > preempted, waited)
	m.fold(t, r.Events)
	m.deliver(t, r)
	if r.Worked {
		m.now = r.Until
	}
	if len(m.e.batch) > 0 {
		m.clearBy = false
	}
	m.checkPool(t)
	m.checkResident(t)
	m.checkLoad(t)
}

// toCompute counts the requests that have come through to the scheduler.
func (m *model) toCompute() int {
	n := 0
	for _, s := range m.live {
		if !s.aborted && s.added+m.cfg.Timing.Overhead <= m.now {
			n++
		}
	}
	return n
}

// checkBatch: the budget holds, nobody is admitted beside a preemption, and nobody computes twice in one.
func (m *model) checkBatch(t *rapid.T, preempted bool, waited int) {
	total, ids := 0, map[string]bool{}
	for _, s := range m.e.batch {
		total += s.n
		ids[s.q.id] = true
		o := m.live[s.q.id]
		o.computed += s.n
		o.preempt = s.q.stats.Preemptions > 0
	}
	if total > m.cfg.MaxNumBatchedTokens || len(m.e.running) > m.cfg.MaxNumSeqs || len(ids) != len(m.e.batch) {
		t.Fatalf("batch of %d tokens, %d running, %d of %d distinct", total, len(m.e.running), len(ids), len(m.e.batch))
	}
	if preempted && m.e.waiting.len() < waited-m.abortedCount() {
		t.Fatalf("%d waiting before a preemption, %d after", waited, m.e.waiting.len())
	}
}

func (m *model) abortedCount() int {
	n := 0
	for _, s := range m.live {
		if s.aborted {
			n++
		}
	}
	return n
}

// fold applies events: a copy is stored before it is removed, and a store's parent is cached, but for a
// window, whose blocks leave it from the head. The device's events come before the host's.
func (m *model) fold(t *rapid.T, events []Event) {
	host := false
	for i := range events {
		ev := &events[i]
		if host && ev.Medium != MediumCPU {
			t.Fatalf("%+v behind an event of the host tier", ev)
		}
		host = ev.Medium == MediumCPU
		switch ev.Kind {
		case Cleared:
			clear(m.copies)
		case Removed:
			if !host && len(ev.Hashes) != 1 {
				t.Fatalf("removal of %d hashes", len(ev.Hashes))
			}
			for _, h := range ev.Hashes {
				m.foldRemoval(t, place{h, ev.Medium, ev.Group})
			}
		case Stored:
			m.foldStore(t, ev)
		}
	}
}

func (m *model) foldRemoval(t *rapid.T, p place) {
	m.copies[p]--
	switch left := m.copies[p]; {
	case left < 0:
		t.Fatalf("removal of %v leaves %d copies", p, left)
	case left == 0:
		delete(m.copies, p)
	}
}

func (m *model) foldStore(t *rapid.T, ev *Event) {
	for _, h := range ev.Hashes {
		at := place{h, ev.Medium, ev.Group}
		if !ev.Reused {
			m.copies[at]++
		} else if ev.Parent != nil || m.copies[at] == 0 {
			t.Fatalf("%v is told as reused behind %v with %d copies", h, ev.Parent, m.copies[at])
		}
	}
	if ev.BlockSize == 0 && ev.Medium == MediumCPU && len(ev.Tokens) == 0 && ev.Parent == nil {
		return // a placeholder
	}
	blocks, windowed := len(ev.Tokens)/ev.BlockSize, ev.SpecWindow > 0
	if len(ev.Tokens) != blocks*ev.BlockSize || len(ev.ExtraKeys) != len(ev.Hashes) || blocks == 0 {
		t.Fatalf("store of %d hashes, %d tokens, %d keys", len(ev.Hashes), len(ev.Tokens), len(ev.ExtraKeys))
	}
	if len(ev.Hashes) > blocks || len(ev.Hashes) < blocks && !windowed {
		t.Fatalf("store of %d hashes for %d blocks", len(ev.Hashes), blocks)
	}
	if ev.Parent != nil && ev.Medium == MediumGPU && !windowed && m.copies[place{*ev.Parent, ev.Medium, ev.Group}] == 0 {
		t.Fatalf("store after %v, which is not cached", ev.Parent)
	}
	if len(ev.Hashes) == blocks {
		m.note(ev)
	}
}

// note keeps what a dense store says of its blocks, if it is known where they are.
func (m *model) note(ev *Event) {
	at, ns, parent := 0, uint64(0), uint64(0)
	if ev.Parent == nil {
		ns = tokens.Namespace("", ev.LoRAName, saltOf(ev))
	} else {
		before, ok := m.facts[place{*ev.Parent, ev.Medium, ev.Group}]
		if !ok {
			return
		}
		at, parent = before.Position+1, ev.Parent.EventInt()
	}
	for i, content := range tokens.AppendChain(nil, ev.Tokens, ev.BlockSize, ns) {
		hash := ev.Hashes[i]
		m.facts[place{hash, ev.Medium, ev.Group}] = Block{
			Hash: hash, Parent: parent, Position: at + i, Content: content, Medium: ev.Medium, Group: ev.Group, SpecKind: ev.SpecKind,
		}
		parent = hash.EventInt()
	}
}

// saltOf is the salt in the first block's extra key, which the adapter precedes.
func saltOf(ev *Event) string {
	key := ev.ExtraKeys[0]
	if ev.LoRAName != "" {
		key = key[1:]
	}
	if len(key) == 0 {
		return ""
	}
	return key[0].Text
}

// deliver checks outputs: one last output per request, indices without a hole, the first token exactly
// when the prompt is computed, stamps in order.
func (m *model) deliver(t *rapid.T, r StepResult) {
	got := map[string]bool{}
	for _, o := range r.Outputs {
		s := m.live[o.ID]
		if s == nil || got[o.ID] {
			t.Fatalf("output %+v of an unknown or finished request, or two in a step", o)
		}
		got[o.ID] = true
		if o.Finish != FinishAbort {
			if o.Index != len(s.outputs) || o.Token < tokens.FirstWord || o.Token >= tokens.Vocab {
				t.Fatalf("output %+v after %d others", o, len(s.outputs))
			}
			s.outputs = append(s.outputs, o.Token)
		}
		if (o.Finish == FinishAbort) != s.aborted || (o.Finish == FinishLength) != (len(s.outputs) == s.MaxTokens && !s.aborted) {
			t.Fatalf("output %+v: aborted %v, %d of %d tokens", o, s.aborted, len(s.outputs), s.MaxTokens)
		}
		if !s.preempt && !s.aborted && s.computed+o.CachedTokens != len(s.Tokens)+len(s.outputs)-1 {
			t.Fatalf("token %d with %d tokens computed and %d cached of %d", o.Index, s.computed, o.CachedTokens, len(s.Tokens))
		}
		if o.Finish != "" {
			s.checkStats(t, o, r.Until)
			delete(m.live, o.ID)
		}
	}
	for id, s := range m.live {
		if !s.preempt && !got[id] && s.computed > 0 && s.computed+m.e.byID[id].stats.CachedTokens >= len(s.Tokens)+len(s.outputs) {
			t.Fatalf("%s is computed and yields nothing", id)
		}
	}
}

func (s *seen) checkStats(t *rapid.T, o Output, until int64) {
	st := *o.Stats
	if st.Arrival != s.added || st.Prompt != len(s.Tokens) || st.Output != len(s.outputs) || st.Outcome != o.Finish {
		t.Fatalf("record %+v of request %+v", st, s)
	}
	if st.Scheduled != 0 && st.Scheduled < st.Arrival || st.FirstToken != 0 && st.FirstToken <= st.Scheduled || st.LastToken < st.FirstToken {
		t.Fatalf("stamps out of order: %+v", st)
	}
	if o.Finish == FinishLength && (st.FirstToken == 0 || st.LastToken != until) {
		t.Fatalf("ended at %d: %+v", until, st)
	}
}

// checkPool: every block is free or referred to, references are memberships in tables, and the table of
// hashes knows every cached block.
func (m *model) checkPool(t *rapid.T) {
	p := m.e.pool
	free := map[int32]bool{}
	p.free.each(func(id int32) bool {
		if free[id] || id == nullBlock || p.blocks[id].state.refs() != 0 {
			t.Fatalf("block %d is twice in the free queue, null or held", id)
		}
		free[id] = true
		return true
	})
	refs := map[int32]int32{}
	for _, q := range m.e.running {
		for i := range q.tables {
			for _, id := range q.tables[i].blocks {
				if id != nullBlock {
					refs[id]++
				}
			}
		}
	}
	if len(free) != p.free.size || len(free)+len(refs) != len(p.blocks)-1 {
		t.Fatalf("%d free (size says %d), %d held, %d blocks", len(free), p.free.size, len(refs), len(p.blocks))
	}
	hashed := 0
	for id := range p.blocks {
		if got, want := p.blocks[id].state.refs(), refs[int32(id)]; got != want {
			t.Fatalf("block %d has %d references and is in %d tables", id, got, want)
		}
		if p.blocks[id].state.hashed() {
			hashed++
		}
	}
	for b := range m.e.Blocks {
		if b.Medium == MediumGPU {
			hashed -= b.Copies
		}
	}
	if hashed != 0 {
		t.Fatalf("%d cached blocks are not in the table", hashed)
	}
}

// checkResident: a subscriber that lost nothing holds what the pool holds.
func (m *model) checkResident(t *rapid.T) {
	if m.clearBy {
		return
	}
	m.checkSums(t)
	resident := map[place]int{}
	for b := range m.e.Blocks {
		at := place{b.Hash, b.Medium, b.Group}
		resident[at] = b.Copies
		b.Copies, b.InUse = 0, false
		if said, ok := m.facts[at]; ok || len(m.cfg.Groups) == 0 && b.Medium == MediumGPU {
			if diff := cmp.Diff(said, b, cmp.AllowUnexported(blockhash.Digest{})); diff != "" {
				t.Fatalf("block as announced and as held (-announced +held):\n%s", diff)
			}
		}
	}
	if !maps.Equal(resident, m.copies) {
		t.Fatalf("resident %v, announced %v", resident, m.copies)
	}
}

// checkSums: what is kept up is what counting gives.
func (m *model) checkSums(t *rapid.T) {
	sums := m.e.Sums(false)
	for b := range m.e.Blocks {
		for i := range sums {
			if s := &sums[i]; s.Medium == b.Medium && s.Group == b.Group {
				s.Blocks, s.Digest = s.Blocks-1, s.Digest-tokens.DigestTerm(b.Hash.EventInt())
			}
		}
	}
	for _, s := range sums {
		if s.Blocks != 0 || s.Digest != 0 {
			t.Fatalf("%+v is not that of the blocks", s)
		}
	}
}

func (m *model) checkLoad(t *rapid.T) {
	l := m.e.Load()
	var uncached int64
	for _, q := range m.e.waiting.items[m.e.waiting.head:] {
		uncached += int64(q.uncached)
	}
	var used int64
	for _, q := range m.e.running {
		used += int64(q.computed)
	}
	if l.UsedTokens != used || l.TokenUsage > 1 || l.HitRate < 0 || l.HitRate > 1 || l.GenRate < 0 {
		t.Fatalf("%d tokens of running requests are computed, load says %+v", used, l)
	}
	if l.WaitingUncachedTokens != uncached {
		t.Fatalf("%d uncached tokens waiting, load says %d", uncached, l.WaitingUncachedTokens)
	}
	if l.Running+l.Waiting != len(m.live) {
		t.Fatalf("%d running and %d waiting of %d", l.Running, l.Waiting, len(m.live))
	}
}

// drain runs the engine dry: every request ends, every block is free, every counter adds up.
func (m *model) drain(t *rapid.T) {
	for steps := 0; len(m.live) > 0; steps++ {
		if steps > 100_000 {
			t.Fatalf("%d requests never end", len(m.live))
		}
		m.step(t)
	}
	m.step(t)
	if l := m.e.Load(); l.Running != 0 || l.Waiting != 0 || l.WaitingUncachedTokens != 0 || l.KVUsage != 0 || l.UsedTokens != 0 {
		t.Fatalf("load of an idle engine is %+v", l)
	}
	if r := m.e.Step(m.now); r.Worked {
		t.Fatalf("an idle engine worked: %+v", r)
	}
}

// TestBlocksLeftBehind: p prompt and o output tokens leave floor((p+o-1)/block size) full blocks, because
// the last token is never computed.
func TestBlocksLeftBehind(t *testing.T) {
	h, err := blockhash.New("xxhash_cbor", "0")
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		bs := rapid.IntRange(1, 16).Draw(t, "block size")
		e, err := New(Config{
			BlockSize: bs, NumBlocks: 400, MaxNumSeqs: 3, MaxNumBatchedTokens: rapid.IntRange(1, 64).Draw(t, "budget"),
			MaxModelLen: 1000, EnablePrefixCaching: true, Hasher: h,
		})
		if err != nil {
			t.Fatal(err)
		}
		all := map[string][]uint32{}
		for i := range rapid.IntRange(1, 4).Draw(t, "requests") {
			id := fmt.Sprint(i)
			prompt := make([]uint32, rapid.IntRange(1, 60).Draw(t, "prompt"))
			for j := range prompt {
				prompt[j] = uint32(1000*i + j)
			}
			all[id] = prompt
			if err := e.Add(0, Request{ID: id, Tokens: prompt, MaxTokens: rapid.IntRange(1, 40).Draw(t, "output")}); err != nil {
				t.Fatal(err)
			}
		}
		for r := e.Step(0); r.Worked; r = e.Step(r.Until) {
			for _, o := range r.Outputs {
				all[o.ID] = append(all[o.ID], o.Token)
			}
		}
		for id, ids := range all {
			if got, want := e.Match(ids, "", ""), (len(ids)-1)/bs; got != want {
				t.Fatalf("request %s of %d tokens left %d blocks of %d, want %d", id, len(ids), got, bs, want)
			}
		}
	})
}

// TestPreemptionKeepsOutputs: what a request says does not depend on what ran beside it.
func TestPreemptionKeepsOutputs(t *testing.T) {
	h, err := blockhash.New("xxhash_cbor", "0")
	if err != nil {
		t.Fatal(err)
	}
	run := func(blocks int) (map[string][]uint32, int64) {
		e, err := New(Config{
			BlockSize: 4, NumBlocks: blocks, MaxNumSeqs: 8, MaxNumBatchedTokens: 64, MaxModelLen: 100,
			EnablePrefixCaching: true, Hasher: h, Seed: 3,
		})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 6 {
			if err := e.Add(0, Request{ID: fmt.Sprint(i), Tokens: []uint32{uint32(i), 1, 2, 3, 4}, MaxTokens: 20}); err != nil {
				t.Fatal(err)
			}
		}
		said := map[string][]uint32{}
		for r := e.Step(0); r.Worked; r = e.Step(r.Until) {
			for _, o := range r.Outputs {
				said[o.ID] = append(said[o.ID], o.Token)
			}
		}
		return said, e.Counters().Preemptions
	}
	roomy, none := run(200)
	tight, some := run(10)
	if none != 0 || some == 0 {
		t.Fatalf("%d preemptions with room, %d without", none, some)
	}
	if diff := cmp.Diff(roomy, tight); diff != "" {
		t.Errorf("outputs (-roomy +tight):\n%s", diff)
	}
}
