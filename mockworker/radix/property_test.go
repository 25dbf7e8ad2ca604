package radix

import (
	"bytes"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"fleetdrill/internal/tokens"
	"fleetdrill/mockworker/blockhash"
	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/wire"
)

// TestEngine drives an engine with random requests, aborts, flushes and steps, and after each step compares it
// with a model that knows only what went in and what came out.
func TestEngine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		t.Repeat(map[string]func(*rapid.T){
			"add":   m.add,
			"abort": m.abort,
			"flush": m.flush,
			"drop":  m.drop,
			"step":  m.step,
			"steps": func(t *rapid.T) {
				for range 6 {
					m.step(t)
				}
			},
		})
		m.drain(t)
	})
}

// model is what an observer outside may conclude.
type model struct {
	e    *Engine
	cfg  Config
	now  int64
	n    int
	live map[string]*seen

	// copies is the fold of all events of the device, host that of the host tier, facts what the stores said of
	// each hash.
	copies, host map[blockhash.Digest]int
	facts        map[blockhash.Digest]engine.Block
}

// of is the fold of a tier.
func (m *model) of(medium string) map[blockhash.Digest]int {
	if medium == MediumHost {
		return m.host
	}
	return m.copies
}

// seen is one request as the observer knows it.
type seen struct {
	engine.Request
	aborted bool
	outputs []uint32
}

func newModel(t *rapid.T) *model {
	c := Config{Config: engine.Config{
		BlockSize:           rapid.IntRange(1, 5).Draw(t, "page"),
		NumBlocks:           rapid.IntRange(2, 24).Draw(t, "pages"),
		MaxNumSeqs:          rapid.IntRange(1, 5).Draw(t, "seqs"),
		MaxNumBatchedTokens: rapid.IntRange(1, 20).Draw(t, "budget"),
		MaxModelLen:         60,
		EnablePrefixCaching: rapid.IntRange(0, 9).Draw(t, "caching") > 0,
		Hasher:              blockhash.NewSGLang(),
		Timing: engine.Timing{A: 1000, B: 7, C: 3, D: 0.5, E: 0.25,
			Overhead: rapid.SampledFrom([]int64{0, 0, 3000}).Draw(t, "overhead")},
		Seed: rapid.Uint64().Draw(t, "seed"),
	}, Bigram: rapid.IntRange(0, 3).Draw(t, "bigram") == 0, Eviction: Policy(rapid.SampledFrom(Policies()).Draw(t, "policy"))}
	if rapid.Bool().Draw(t, "hierarchical") {
		c.HostBlocks = rapid.IntRange(1, 40).Draw(t, "host")
		c.WritePolicy = WritePolicy(rapid.SampledFrom(WritePolicies()).Draw(t, "write"))
	}
	e, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return &model{e: e, cfg: c, live: map[string]*seen{}, copies: map[blockhash.Digest]int{}, host: map[blockhash.Digest]int{}, facts: map[blockhash.Digest]engine.Block{}}
}

// add draws prompts from few families, so that prefixes are shared, wholly and in part.
func (m *model) add(t *rapid.T) {
	family := rapid.Uint32Range(0, 2).Draw(t, "family")
	shared := rapid.IntRange(0, 25).Draw(t, "shared")
	own := rapid.IntRange(0, 6).Draw(t, "own")
	m.n++
	r := engine.Request{ID: fmt.Sprint("r", m.n), MaxTokens: rapid.IntRange(1, 12).Draw(t, "output"), Ref: m.n}
	for i := range shared + own {
		id := 1000*family + uint32(i)
		if i >= shared {
			id += uint32(m.n) * 100
		}
		r.Tokens = append(r.Tokens, tokens.FirstWord+id)
	}
	if rapid.IntRange(0, 3).Draw(t, "namespace") == 0 {
		r.LoRAName = rapid.SampledFrom([]string{"", "adapter"}).Draw(t, "lora")
		r.CacheSalt = rapid.SampledFrom([]string{"", "pepper"}).Draw(t, "salt")
	}
	pages := (len(r.Tokens) + r.MaxTokens - 1 + m.cfg.BlockSize - 1) / m.cfg.BlockSize
	fits := len(r.Tokens) > 0 && pages <= m.cfg.NumBlocks-1 && len(r.Tokens)+r.MaxTokens <= m.cfg.MaxModelLen
	if err := m.e.Add(m.now, r); (err == nil) != fits {
		t.Fatalf("request of %d+%d tokens: %v", len(r.Tokens), r.MaxTokens, err)
	}
	if fits {
		m.live[r.ID] = &seen{Request: r}
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

func (m *model) flush(t *rapid.T) {
	preempt := rapid.IntRange(0, 3).Draw(t, "preempt") == 0
	if got, want := m.e.ResetPrefixCache(preempt), preempt || len(m.live) == 0; got != want {
		t.Fatalf("a flush with %d requests: %v", len(m.live), got)
	} else if got {
		m.empty(t)
	}
}

// drop: no event ever tells of what was.
func (m *model) drop(t *rapid.T) {
	m.e.DropCache()
	clear(m.copies)
	clear(m.host)
	m.empty(t)
}

// empty: nothing is cached or running, and whoever ran waits.
func (m *model) empty(t *rapid.T) {
	for b := range m.e.Blocks {
		t.Fatalf("block %v in an empty cache", b)
	}
	if l := m.e.Load(); l.Running != 0 || l.KVUsage != 0 || l.Waiting != len(m.live) || m.e.free != m.cfg.NumBlocks-1 {
		t.Fatalf("%+v with %d free in an empty cache, %d requests live", l, m.e.free, len(m.live))
	}
	m.checkLoad(t)
}

func (m *model) step(t *rapid.T) {
	toCompute := 0
	for id, s := range m.live {
		if !s.aborted && m.e.byID[id].readyAt <= m.now {
			toCompute++
		}
	}
	expected := m.hits()
	r := m.e.Step(m.now)
	if toCompute > 0 && len(m.e.batch) == 0 {
		t.Fatalf("%d requests to compute and no pass", toCompute)
	}
	onItsWay := len(m.e.waiting) > 0 && r.Until == m.e.waiting[0].readyAt
	if (len(m.e.batch) > 0) != (r.Until > m.now) && !onItsWay || !onItsWay && r.Worked != (len(m.e.batch)+len(r.Outputs)+len(r.Events) > 0) {
		t.Fatalf("step of %d requests at %d until %d: worked %v, %d events", len(m.e.batch), m.now, r.Until, r.Worked, len(r.Events))
	}
	m.now = r.Until
	m.checkBatch(t)
	m.fold(t, r.Events)
	m.deliver(t, r, expected)
	m.checkPages(t)
	m.checkResident(t)
	m.checkLoad(t)
}

// found is what a request that was never scheduled may find cached: all that the device has, and behind it what
// the host has. It is read back whole or not at all, and not if it is little.
type found struct{ device, host int }

// hits looks for every waiting request, by a naive search through what was told.
func (m *model) hits() map[string]found {
	out := map[string]found{}
	for _, q := range m.e.waiting {
		if q.lora != "" || q.started {
			continue // an adapter's pages cannot be told from the base model's
		}
		var f found
		for n, h := range m.e.reusable(q) {
			switch onDevice := m.e.tree.peek("", q.hashes[:n+1]) == n+1 && m.copies[h] > 0; {
			case onDevice && f.host == 0:
				f.device += m.cfg.BlockSize
			case f.device+f.host == n*m.cfg.BlockSize && m.hosts(q, n):
				f.host += m.cfg.BlockSize
			}
		}
		out[q.id] = f
	}
	return out
}

// hosts says whether the base model's tree has page n of a request in the host.
func (m *model) hosts(q *request, n int) bool {
	if m.host[q.hashes[n]] == 0 {
		return false
	}
	for _, node := range m.e.tree.of("").nodes {
		for _, p := range node.pages {
			if p.hash == q.hashes[n] && node.backed {
				return true
			}
		}
	}
	return false
}

// may says whether a request may have found so many tokens. To one that is not the first of its step, others may
// have read back some of it, and thrown out more.
func (f found) may(cached int, first bool) bool {
	if first {
		return cached == f.device || f.host >= minLoadBack && cached == f.device+f.host
	}
	return cached <= f.device+f.host
}

// checkBatch: the budget holds for prompts in whole pages, prompts and decoding do not mix, at most the last
// request of a batch is not done with its prompt.
func (m *model) checkBatch(t *rapid.T) {
	bs := m.cfg.BlockSize
	total, decodes, ids := 0, 0, map[string]bool{}
	for i, s := range m.e.batch {
		ids[s.q.id] = true
		if s.decode {
			decodes++
			continue
		}
		total += s.n
		if s.q == m.e.chunked && (i != len(m.e.batch)-1 || s.n%bs != 0) {
			t.Fatalf("request %d of %d is in the middle of its prompt after %d tokens", i, len(m.e.batch), s.n)
		}
	}
	if decodes > 0 && decodes < len(m.e.batch) || total > max(bs, m.cfg.MaxNumBatchedTokens) || len(ids) != len(m.e.batch) {
		t.Fatalf("batch of %d tokens, %d of %d decode, %d distinct", total, decodes, len(m.e.batch), len(ids))
	}
	if l := m.e.Load(); l.Running > m.cfg.MaxNumSeqs {
		t.Fatalf("%d run", l.Running)
	}
}

// fold applies events: a page is stored before it is removed, and a store's parent is cached. Only an
// adapter's pages have a second copy.
func (m *model) fold(t *rapid.T, events []engine.Event) {
	for i, ev := range events {
		switch ev.Kind {
		case engine.Cleared:
			clear(m.copies)
			clear(m.host)
		case engine.Removed:
			if i > 0 && events[i-1].Kind == engine.Removed && events[i-1].Medium == ev.Medium {
				t.Fatalf("two removals in a row")
			}
			copies := m.of(ev.Medium)
			for _, h := range ev.Hashes {
				if copies[h]--; copies[h] < 0 {
					t.Fatalf("%v is removed from %s and was not stored", h, ev.Medium)
				} else if copies[h] == 0 {
					delete(copies, h)
				}
			}
		case engine.Stored:
			m.foldStore(t, ev)
		}
	}
}

func (m *model) foldStore(t *rapid.T, ev engine.Event) {
	span := len(ev.Hashes) * m.cfg.BlockSize
	if ev.Bigram != m.cfg.Bigram || ev.Bigram && len(ev.Tokens) != span+1 || !ev.Bigram && len(ev.Tokens) != span || ev.BlockSize != m.cfg.BlockSize || len(ev.Hashes) == 0 ||
		ev.LoRAName != "" || ev.LoRAID != nil || ev.Medium != engine.MediumGPU && (ev.Medium != MediumHost || m.cfg.HostBlocks == 0) {
		t.Fatalf("store %+v", ev)
	}
	at, ns, parent := 0, uint64(0), uint64(0)
	if ev.Parent == nil {
		ns = tokens.Namespace("", "", ev.CacheSalt)
	} else {
		// The host holds a prefix without holes, unless it takes what the device evicts from the tail.
		if m.of(ev.Medium)[*ev.Parent] == 0 && (m.cfg.WritePolicy != WriteBack || m.copies[*ev.Parent] == 0) {
			t.Fatalf("store in %s after %v, which is not cached", ev.Medium, ev.Parent)
		}
		at, parent = m.facts[*ev.Parent].Position+1, ev.Parent.EventInt()
	}
	for i, content := range tokens.AppendChain(nil, ev.Tokens[:span], ev.BlockSize, ns) {
		hash := ev.Hashes[i]
		copies := m.of(ev.Medium)
		copies[hash]++
		if copies[hash] > 2 {
			t.Fatalf("%v has %d copies", hash, copies[hash])
		}
		told := engine.Block{Hash: hash, Parent: parent, Position: at + i, Content: content, Group: engine.NoGroup}
		if before, ok := m.facts[hash]; ok && before != told {
			t.Fatalf("%v was told as %+v and is now %+v", hash, before, told)
		}
		m.facts[hash] = told
		parent = hash.EventInt()
	}
}

// deliver checks outputs: one last output per request, indices without a hole, stamps in order, and the cached
// prefix what a search through the events found.
func (m *model) deliver(t *rapid.T, r engine.StepResult, expected map[string]found) {
	got := map[string]bool{}
	for _, o := range r.Outputs {
		s := m.live[o.ID]
		if s == nil || got[o.ID] || o.Ref != s.Ref {
			t.Fatalf("output %+v of an unknown or finished request, or two in a step", o)
		}
		got[o.ID] = true
		if o.Finish != engine.FinishAbort {
			if o.Index != len(s.outputs) || o.Token != engine.OutputToken(m.cfg.Draw(o.ID), len(s.Tokens)+o.Index) {
				t.Fatalf("output %+v after %d others", o, len(s.outputs))
			}
			s.outputs = append(s.outputs, o.Token)
		}
		if (o.Finish == engine.FinishAbort) != s.aborted || (o.Finish == engine.FinishLength) != (len(s.outputs) == s.MaxTokens && !s.aborted) {
			t.Fatalf("output %+v: aborted %v, %d of %d tokens", o, s.aborted, len(s.outputs), s.MaxTokens)
		}
		if o.Finish != "" {
			st := o.Stats
			if st.Outcome != o.Finish || st.Output != len(s.outputs) || st.Prompt != len(s.Tokens) || st.CachedTokens != o.CachedTokens ||
				o.Finish == engine.FinishLength && (st.Arrival > st.Scheduled || st.Scheduled > st.FirstToken || st.FirstToken > st.LastToken || st.LastToken != r.Until) {
				t.Fatalf("stats %+v of %+v", st, o)
			}
			delete(m.live, o.ID)
		}
	}
	first := true
	for _, s := range m.e.batch {
		if want, ok := expected[s.q.id]; ok && !want.may(s.q.stats.CachedTokens, first || m.e.tree.host == nil) {
			t.Fatalf("%s found %d tokens cached, want %+v", s.q.id, s.q.stats.CachedTokens, want)
		}
		first = false
	}
}

// checkPages: every page belongs to the tree, to one request or to nobody.
func (m *model) checkPages(t *rapid.T) {
	have := m.e.free + m.e.tree.pages
	for _, q := range m.e.onDevice() {
		if q.own < 0 || q.own+q.protected != (q.computed+m.cfg.BlockSize-1)/m.cfg.BlockSize || m.cfg.EnablePrefixCaching && q.protected > q.node.end() {
			t.Fatalf("%s has %d own pages and %d protected for %d tokens", q.id, q.own, q.protected, q.computed)
		}
		have += q.own
	}
	if have != m.cfg.NumBlocks-1 || m.e.free < 0 {
		t.Fatalf("%d pages of %d are accounted for, %d free", have, m.cfg.NumBlocks-1, m.e.free)
	}
}

// checkResident: what is resident is what was announced.
func (m *model) checkResident(t *rapid.T) {
	n := 0
	for b := range m.e.Blocks {
		n++
		want := m.facts[b.Hash]
		want.Copies, want.InUse, want.Medium = m.of(b.Medium)[b.Hash], b.InUse, b.Medium
		if b != want {
			t.Fatalf("resident %+v, announced %+v", b, want)
		}
	}
	if n != len(m.copies)+len(m.host) {
		t.Fatalf("%d blocks resident, %d and %d announced", n, len(m.copies), len(m.host))
	}
	m.checkHost(t)
}

// checkHost: every page of the host belongs to a copy that is there or on its way, or to nobody.
func (m *model) checkHost(t *rapid.T) {
	h := m.e.tree.host
	if h == nil {
		return
	}
	have, leaves := h.free, 0
	for _, b := range m.e.tree.branches {
		for _, n := range b.nodes {
			if n.backed || n.writing != nil {
				have += len(n.pages)
			}
			if n.evicted && !n.backed || n.evicted && n.devices > 0 || !n.evicted && !n.parent.isRoot() && n.parent.evicted {
				t.Fatalf("node %+v is nowhere, or behind what only the host has", n)
			}
			if n.evicted && n.slot != notLeaf {
				leaves++
			}
		}
	}
	if have != h.size || h.free < 0 || leaves != len(h.leaves.heap) {
		t.Fatalf("%d host pages of %d are accounted for, %d free, %d leaves of %d", have, h.size, h.free, leaves, len(h.leaves.heap))
	}
}

func (m *model) checkLoad(t *rapid.T) {
	l, uncached := m.e.Load(), 0
	for _, q := range m.e.waiting {
		uncached += q.uncached
	}
	if l.Running+l.Waiting != len(m.live) || l.WaitingUncachedTokens != int64(uncached) || l.KVUsage < 0 || l.KVUsage > 1 {
		t.Fatalf("%+v with %d requests live, %d uncached tokens", l, len(m.live), uncached)
	}
}

// drain: everything ends, and the engine is idle with all pages free or in the tree.
func (m *model) drain(t *rapid.T) {
	for range 10_000 {
		if len(m.live) == 0 {
			break
		}
		m.step(t)
	}
	m.step(t)
	if l := m.e.Load(); len(m.live) > 0 || l.Running+l.Waiting > 0 || l.KVUsage != 0 || m.e.tree.evictable != m.e.tree.pages {
		t.Fatalf("%d requests live after a drain, %+v, %d pages of %d evictable", len(m.live), l, m.e.tree.evictable, m.e.tree.pages)
	}
}

// TestSameSeedSameBytes: one seed is one stream of events, byte for byte.
func TestSameSeedSameBytes(t *testing.T) {
	for _, name := range []string{"sglang-array", "sglang-map"} {
		for _, write := range append(WritePolicies(), "no host") {
			first := streamOf(t, name, write)
			if len(first) < 20_000 {
				t.Fatalf("%s, %s: a stream of %d bytes", name, write, len(first))
			}
			if !bytes.Equal(first, streamOf(t, name, write)) {
				t.Errorf("%s, %s: two runs of one seed differ", name, write)
			}
		}
	}
}

func streamOf(t *testing.T, profile, write string) (stream []byte) {
	t.Helper()
	enc, err := wire.New(profile, wire.Options{IntHashes: true})
	if err != nil {
		t.Fatal(err)
	}
	e := busyEngine(t, 96)
	if write != "no host" {
		e.tree.host = newHostTier(120, LRU, WritePolicy(write))
	}
	now := int64(0)
	told := map[string]int{}
	for n := range 1500 {
		addBusy(t, e, now, n)
		r := e.Step(now)
		now = r.Until
		for _, ev := range r.Events {
			told[fmt.Sprint(ev.Kind, ev.Medium)]++
		}
		stream = enc.AppendBatch(stream, float64(now), r.Events)
	}
	if e.counters.Preemptions == 0 {
		t.Error("nothing was retracted on the way")
	}
	if e.tree.host != nil && (told[fmt.Sprint(engine.Stored, MediumHost)] < 5 || told[fmt.Sprint(engine.Removed, MediumHost)] < 5) {
		t.Errorf("%s: the host was hardly used: %v", write, told)
	}
	return stream
}

// busyEngine is an engine of so many pages of 16 tokens that is never without work.
func busyEngine(t testing.TB, pages int) *Engine {
	t.Helper()
	e, err := New(Config{Config: engine.Config{
		BlockSize: 16, NumBlocks: pages + 1, MaxNumSeqs: 64, MaxNumBatchedTokens: 2048, MaxModelLen: 4096,
		EnablePrefixCaching: true, Hasher: blockhash.NewSGLang(), Timing: engine.Timing{A: 1000, B: 1}, Seed: 7,
	}})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// addBusy adds the n-th request: a prompt of 160 tokens, half of it one of eight prefixes.
func addBusy(t testing.TB, e *Engine, now int64, n int) {
	t.Helper()
	ids := make([]uint32, 160)
	for i := range ids {
		ids[i] = tokens.FirstWord + uint32(1000*(n%8)+i)
		if i >= 80 {
			ids[i] = tokens.FirstWord + uint32((n*977+i)%100_000)
		}
	}
	if err := e.Add(now, engine.Request{ID: fmt.Sprint("r", n), Tokens: ids, MaxTokens: 200 + n%40}); err != nil {
		t.Fatal(err)
	}
}

// BenchmarkFull is the block events of an engine whose pool is full: each prompt evicts what another left.
func BenchmarkFull(b *testing.B) {
	e := busyEngine(b, 16_384)
	now, events, n := int64(0), 0, 0
	for b.Loop() {
		ids := make([]uint32, 1024)
		for i := range ids {
			ids[i] = tokens.FirstWord + uint32((n*7919+i)%140_000)
		}
		n++
		if err := e.Add(now, engine.Request{ID: fmt.Sprint(n), Tokens: ids, MaxTokens: 1}); err != nil {
			b.Fatal(err)
		}
		r := e.Step(now)
		now = r.Until
		for _, ev := range r.Events {
			events += len(ev.Hashes)
		}
	}
	b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "blocks/s")
}
