package truth

import (
	"bytes"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vmihailenco/msgpack/v5"
	"pgregory.net/rapid"

	"fleetdrill/internal/contract"
	"fleetdrill/internal/tokens"
)

const testBlock = 4

// testEvent is one event as a test writes it; msgpack/v5 encodes it, so that decoder and encoder of the
// test share nothing with the product.
type testEvent struct {
	kind   string
	hashes []uint64
	parent *uint64
	tokens []uint32
	salt   string
	lora   string
	medium string
	group  int
	spec   string
}

func encode(t interface{ Fatal(...any) }, events ...testEvent) []byte {
	var buf bytes.Buffer
	e := msgpack.NewEncoder(&buf)
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	must(e.EncodeArrayLen(3))
	must(e.EncodeFloat64(1757500000.25))
	must(e.EncodeArrayLen(len(events)))
	for _, ev := range events {
		m := map[string]any{"type": ev.kind}
		if ev.kind != "AllBlocksCleared" {
			m["block_hashes"], m["medium"], m["group_idx"] = ev.hashes, "GPU", ev.group
		}
		if ev.medium != "" {
			m["medium"] = ev.medium
		}
		if ev.kind == "BlockStored" {
			m["parent_block_hash"], m["token_ids"], m["block_size"] = nil, ev.tokens, testBlock
			m["lora_id"], m["lora_name"], m["kv_cache_spec_kind"] = nil, nil, "full_attention"
			if ev.spec != "" {
				m["kv_cache_spec_kind"] = ev.spec
			}
			if ev.parent != nil {
				m["parent_block_hash"] = *ev.parent
			}
			m["extra_keys"] = extraKeys(ev)
			if ev.lora != "" {
				m["lora_name"] = ev.lora
			}
		}
		e.SetSortMapKeys(false)
		must(encodeMap(e, m))
	}
	must(e.EncodeInt(0))
	return buf.Bytes()
}

// encodeMap writes type first, lora_name before extra_keys, the rest sorted: the decoder may rely on the
// engines' declaration order no further than that.
func encodeMap(e *msgpack.Encoder, m map[string]any) error {
	keys := slices.Sorted(maps.Keys(m))
	slices.SortStableFunc(keys, func(a, b string) int { return rank(a) - rank(b) })
	if err := e.EncodeMapLen(len(keys)); err != nil {
		return err
	}
	e.UseCompactInts(true)
	for _, k := range keys {
		if err := e.EncodeMulti(k, m[k]); err != nil {
			return err
		}
	}
	return nil
}

func rank(key string) int {
	switch key {
	case "type":
		return 0
	case "extra_keys":
		return 2
	}
	return 1
}

func extraKeys(ev testEvent) []any {
	keys := make([]any, len(ev.hashes))
	for i := range keys {
		var k []any
		if ev.lora != "" {
			k = append(k, ev.lora)
		}
		if i == 0 && ev.salt != "" {
			k = append(k, ev.salt)
		}
		if k != nil {
			keys[i] = k
		}
	}
	return keys
}

func stored(parent *uint64, toks []uint32, hashes ...uint64) testEvent {
	return testEvent{kind: "BlockStored", hashes: hashes, parent: parent, tokens: toks}
}

func removed(hashes ...uint64) testEvent { return testEvent{kind: "BlockRemoved", hashes: hashes} }

func run(from, n int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = uint32(from + i*1000)
	}
	return out
}

func ptr[T any](v T) *T { return &v }

func TestFoldPlacesBlocks(t *testing.T) {
	f := NewFold(testBlock)
	toks := run(7, 3*testBlock)
	chain := tokens.AppendChain(nil, toks, testBlock, 0)
	salted := tokens.AppendChain(nil, toks, testBlock, tokens.Namespace("", "ad", "pepper"))
	payload := encode(t,
		stored(nil, toks[:2*testBlock], 10, 11),
		stored(ptr(uint64(11)), toks[2*testBlock:], 1<<63+5),
		stored(ptr(uint64(10)), toks[testBlock:2*testBlock], 11), // a second physical copy
		testEvent{kind: "BlockStored", hashes: []uint64{20}, tokens: toks[:testBlock], lora: "ad", salt: "pepper"},
		testEvent{kind: "BlockStored", hashes: []uint64{30}, tokens: toks[:testBlock], medium: "CPU"},
		stored(ptr(uint64(999)), toks[:testBlock], 31),
		removed(998),
		testEvent{kind: "BlockInactive", hashes: []uint64{10}},
	)
	if err := f.Apply(0, 5, payload); err != nil {
		t.Fatal(err)
	}
	set, head := f.Announced()
	want := map[uint64]Entry{
		10:        {Content: chain[0], Copies: 1},
		11:        {Parent: 10, Content: chain[1], Position: 1, Copies: 2},
		1<<63 + 5: {Parent: 11, Content: chain[2], Position: 2, Copies: 1},
		20:        {Content: salted[0], Copies: 1},
	}
	if diff := cmp.Diff(want, set); diff != "" {
		t.Errorf("announced (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(Head{Seq: 0, Blocks: 4, Digest: digest(want)}, head); diff != "" {
		t.Errorf("head (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(Skips{Orphans: 1, Unknown: 1, Other: 1}, f.Skipped()); diff != "" {
		t.Errorf("skips (-want +got):\n%s", diff)
	}
}

func digest(set map[uint64]Entry) (d uint64) {
	for h := range set {
		d += tokens.DigestTerm(h)
	}
	return d
}

// The fold must come from the bytes: a payload altered on its way out has to show.
func TestFoldFollowsTamperedBytes(t *testing.T) {
	clean := encode(t, stored(nil, run(1000, testBlock), 0xabcdef0123456789))
	tampered := bytes.Replace(clean, []byte{0xab, 0xcd, 0xef}, []byte{0xab, 0xcd, 0xee}, 1)
	f, g := NewFold(testBlock), NewFold(testBlock)
	if err := f.Apply(0, 1, clean); err != nil {
		t.Fatal(err)
	}
	if err := g.Apply(0, 1, tampered); err != nil {
		t.Fatal(err)
	}
	set, _ := g.Announced()
	if _, there := set[0xabcdee0123456789]; !there || f.Head().Digest == g.Head().Digest {
		t.Fatalf("a tampered hash left no trace: %v", set)
	}
}

func TestUndecodablePayloadIsAnEmptyBatch(t *testing.T) {
	narrow, wide := run(1000, 2*testBlock), run(100_000, 2*testBlock) // tokens of three and of five bytes
	clean := encode(t, stored(nil, run(1, testBlock), 1), stored(nil, append(narrow, wide...), 2, 3, 4, 5))
	for cut := range clean {
		f := NewFold(testBlock)
		if err := f.Apply(3, 1, clean[:cut]); err == nil {
			t.Fatalf("a payload cut at byte %d was read", cut)
		}
		if h := f.Head(); h.Seq != 3 || h.Blocks != 0 || f.Skipped().Undecodable != 1 {
			t.Fatalf("cut at %d: head %+v, skips %+v", cut, h, f.Skipped())
		}
	}
}

// reference is a fold that keeps every state it went through.
type reference struct{ states []map[uint64]int }

func TestJournalReachesEveryPastState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := NewFold(testBlock)
		ref := reference{states: []map[uint64]int{{}}}
		var whole [][]Set // every set after each batch, with all that is known of a block
		for seq := range rapid.IntRange(1, 30).Draw(t, "batches") {
			now := maps.Clone(ref.states[len(ref.states)-1])
			var events []testEvent
			for range rapid.IntRange(0, 4).Draw(t, "events") {
				events = append(events, drawEvent(t, now))
			}
			if err := f.Apply(int64(seq), int64(seq), encode(t, events...)); err != nil {
				t.Fatal(err)
			}
			ref.states = append(ref.states, now)
			sets, _ := f.Sets()
			whole = append(whole, sets)
		}
		for i, want := range whole {
			sets, _, err := f.At(int64(i))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, sets[:len(want)]); diff != "" { // sets that came later are empty
				t.Fatalf("announced at %d, journal undone (-then +now):\n%s", i, diff)
			}
		}
		for i, want := range ref.states {
			set, head, err := f.At(int64(i) - 1)
			if err != nil {
				t.Fatal(err)
			}
			got := map[uint64]int{}
			for _, s := range set {
				for h, e := range s.Blocks {
					got[h+bases[s.Tier+" "+s.Class]] = int(e.Copies)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("announced at %d (-want +got):\n%s", i-1, diff)
			}
			if head.Digest != digest(set[0].Blocks) || head.Blocks != len(set[0].Blocks) {
				t.Fatalf("digest at %d is not that of its set", i-1)
			}
		}
		for i, d := range f.Digests(0, make([]contract.TruthDigest, 0, 100)) {
			want, sum := 0, uint64(0)
			for h := range ref.states[i+1] {
				if h < 1000 {
					want, sum = want+1, sum+tokens.DigestTerm(h)
				}
			}
			if d.Seq != int64(i) || d.Blocks != want || uint64(d.Digest) != sum {
				t.Fatalf("digest line %d is %+v, want %d blocks and %d", i, d, want, sum)
			}
		}
	})
}

// bases tell the sets apart in the reference: what is added to their hashes.
var bases = map[string]uint64{"device main": 0, "host main": 1000, "device window": 2000}

// drawEvent makes one event over a small set of hashes, in one of three sets, and plays it on the reference
// counts.
func drawEvent(t *rapid.T, now map[uint64]int) testEvent {
	hash := uint64(rapid.IntRange(1, 6).Draw(t, "hash"))
	where := rapid.SampledFrom([]string{"device main", "device main", "host main", "device window"}).Draw(t, "set")
	to := func(ev testEvent) testEvent {
		switch where {
		case "host main":
			ev.medium = "CPU"
		case "device window":
			ev.group, ev.spec = 1, "sliding_window"
		}
		return ev
	}
	at := bases[where] + hash
	switch kind := rapid.IntRange(0, 9).Draw(t, "kind"); {
	case kind == 0:
		clear(now)
		return testEvent{kind: "AllBlocksCleared"}
	case kind == 1 && now[at] > 0 && now[at+10] > 0: // down a chain, as an engine evicts
		for _, h := range []uint64{at, at + 10} {
			if now[h]--; now[h] == 0 {
				delete(now, h)
			}
		}
		return to(removed(hash+10, hash))
	case kind <= 4:
		// A window's removal tells its class only by the group of an earlier store.
		if where == "device window" && now[at] == 0 {
			now[at]++
			return to(stored(nil, run(int(hash), testBlock), hash))
		}
		if now[at]--; now[at] <= 0 {
			delete(now, at)
		}
		return to(removed(hash))
	case kind == 5:
		now[at]++
		now[at+10]++
		return to(stored(nil, run(int(hash), 2*testBlock), hash, hash+10))
	case kind == 6 && where != "device main": // a parent that is nowhere, and tokens of blocks that are not told
		now[at]++
		return to(stored(ptr(uint64(77)), run(int(hash), 3*testBlock), hash))
	default:
		now[at]++
		return to(stored(nil, run(int(hash), testBlock), hash))
	}
}

func TestJournalLineSaysWhatChanged(t *testing.T) {
	f := NewFold(testBlock)
	toks := run(50, 2*testBlock)
	chain := tokens.AppendChain(nil, toks, testBlock, 0)
	for seq, payload := range [][]byte{
		encode(t, stored(nil, toks, 1, 2)),
		encode(t, removed(2), stored(ptr(uint64(1)), toks[testBlock:], 3)),
		encode(t, testEvent{kind: "AllBlocksCleared"}),
	} {
		if err := f.Apply(int64(seq), int64(100+seq), payload); err != nil {
			t.Fatal(err)
		}
	}
	one := contract.U64(1)
	want := []contract.TruthJournal{
		{Seq: 1, MonoNs: 101, Removed: []contract.U64{2}, Stored: []contract.TruthStore{{Hash: 3, Parent: &one, Position: 1, Content: contract.U64(chain[1])}}},
		{Seq: 2, MonoNs: 102, Removed: []contract.U64{}, Stored: []contract.TruthStore{}, Cleared: true},
	}
	if diff := cmp.Diff(want, f.Journal(1, make([]contract.TruthJournal, 0, 10))); diff != "" {
		t.Errorf("journal (-want +got):\n%s", diff)
	}
	if _, _, err := f.At(7); err == nil {
		t.Error("a sequence number that is not sent yet was answered")
	}
}

func TestRingsKeepTheNewest(t *testing.T) {
	f := NewFold(testBlock)
	last := int64(JournalRing + 500)
	empty := encode(t)
	for seq := range last + 1 {
		if err := f.Apply(seq, seq, empty); err != nil {
			t.Fatal(err)
		}
	}
	got := f.Digests(0, make([]contract.TruthDigest, 0, 2*DigestRing))
	if len(got) != DigestRing || got[0].Seq != last-DigestRing+1 || got[len(got)-1].Seq != last {
		t.Errorf("%d digests from %d to %d", len(got), got[0].Seq, got[len(got)-1].Seq)
	}
	if _, _, err := f.At(0); err == nil {
		t.Error("a sequence number behind the journal was answered")
	}
	if _, _, err := f.At(last - JournalRing); err != nil {
		t.Errorf("the oldest state the journal reaches: %v", err)
	}
}

// A few very large batches must not hold more changes than the budget.
func TestJournalIsBoundedInChanges(t *testing.T) {
	f := NewFold(1)
	for seq := range int64(40) {
		rec := record{seq: seq, changes: JournalChanges / 10}
		f.keep(rec)
	}
	if f.changes > JournalChanges || f.journal.Len() != 10 {
		t.Fatalf("%d records hold %d changes", f.journal.Len(), f.changes)
	}
}

// What is deferred is there for whoever looks, in any order of looks and ways in, and what cannot be read is
// told.
func TestDeferredIsAsApplied(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var told []int64
		at, later := NewFold(testBlock), NewFold(testBlock)
		later.OnUnreadable(func(seq int64, err error) { told = append(told, seq) })
		var broken []int64
		counts := map[uint64]int{}
		for seq := range int64(rapid.IntRange(1, 3*maxWaiting).Draw(t, "batches")) {
			payload := encode(t, drawEvent(t, counts), drawEvent(t, counts))
			switch rapid.IntRange(0, 9).Draw(t, "way") {
			case 0:
				payload = payload[:len(payload)-1]
				broken = append(broken, seq)
			case 1:
				at.Lost(seq, seq)
				later.Lost(seq, seq)
				continue
			case 2:
				if at.Head() != later.Head() || at.Skipped() != later.Skipped() {
					t.Fatalf("before %d: applied %+v, deferred %+v", seq, at.Head(), later.Head())
				}
			}
			_ = at.Apply(seq, seq, payload)
			later.Defer(seq, seq, payload)
		}
		want, _ := at.Sets()
		got, _ := later.Sets()
		lines := func(f *Fold) []contract.TruthJournal { return f.Journal(0, make([]contract.TruthJournal, 0, 1000)) }
		sums := func(f *Fold) []contract.TruthDigest { return f.Digests(0, make([]contract.TruthDigest, 0, 1000)) }
		if diff := cmp.Diff(want, got) + cmp.Diff(lines(at), lines(later)) + cmp.Diff(sums(at), sums(later)) + cmp.Diff(broken, told); diff != "" {
			t.Fatalf("(-applied +deferred):\n%s", diff)
		}
	})
}

// The first look may be any of them: none sees a fold that is behind.
func TestEveryLookSeesWhatWaits(t *testing.T) {
	payload := encode(t, stored(nil, run(1, testBlock), 5), removed(9))
	for name, sees := range map[string]func(*Fold) bool{
		"Head":      func(f *Fold) bool { return f.Head().Blocks == 1 },
		"Skipped":   func(f *Fold) bool { return f.Skipped().Unknown == 1 },
		"Announced": func(f *Fold) bool { set, _ := f.Announced(); return len(set) == 1 },
		"Sets":      func(f *Fold) bool { sets, _ := f.Sets(); return len(sets[0].Blocks) == 1 },
		"Heads":     func(f *Fold) bool { _, at := f.Heads(); return at.Seq == 0 },
		"Digests":   func(f *Fold) bool { return len(f.Digests(0, make([]contract.TruthDigest, 0, 1))) == 1 },
		"Journal":   func(f *Fold) bool { return len(f.Journal(0, make([]contract.TruthJournal, 0, 1))) == 1 },
		"At":        func(f *Fold) bool { _, head, err := f.At(0); return err == nil && head.Blocks == 1 },
		"Lost":      func(f *Fold) bool { f.Lost(1, 1); return f.head.Seq == 1 && f.head.Blocks == 1 },
		"Apply":     func(f *Fold) bool { return f.Apply(1, 1, payload) == nil && f.sets.all[0].blocks.rows[0].copies() == 2 },
		"Restart":   func(f *Fold) bool { f.Restart(1); return f.Head() == Head{Epoch: 1, Seq: -1} },
		"Shared": func(f *Fold) bool {
			_, shared, _ := f.Shared([]Resident{{Tier: TierDevice, Class: ClassMain, Hashes: []uint64{5}}})
			return shared[0] == 1
		},
	} {
		f := NewFold(testBlock)
		f.Defer(0, 0, payload)
		if f.head.Seq != -1 {
			t.Fatalf("a batch by itself was folded at once: %+v", f.head)
		}
		if !sees(f) {
			t.Errorf("%s does not see a batch that waits", name)
		}
	}
}

// A lost batch uses up its number and nothing else; what it would have stored is an orphan's parent.
func TestLostBatchIsEmpty(t *testing.T) {
	f := NewFold(testBlock)
	apply := func(seq int64, ev testEvent) {
		t.Helper()
		if err := f.Apply(seq, seq, encode(t, ev)); err != nil {
			t.Fatal(err)
		}
	}
	apply(0, stored(nil, run(1, testBlock), 11))
	before := f.Head()
	f.Lost(1, 1) // 12, behind 11
	parent := uint64(12)
	apply(2, stored(&parent, run(9, testBlock), 13))
	if got := f.Head(); got.Seq != 2 || got.Blocks != before.Blocks || got.Digest != before.Digest || f.Skipped().Orphans != 1 {
		t.Errorf("head %+v after a lost batch, before it %+v, skipped %+v", got, before, f.Skipped())
	}
	lines := f.Journal(0, make([]contract.TruthJournal, 0, 10))
	if len(lines) != 3 || len(lines[1].Stored)+len(lines[1].Removed) != 0 || lines[1].Seq != 1 {
		t.Errorf("journal %+v", lines)
	}
}

// A restart takes set, numbers and past with it, and a past of before is refused.
func TestRestartBeginsAnew(t *testing.T) {
	f := NewFold(testBlock)
	for seq := range int64(5) {
		if err := f.Apply(seq, seq, encode(t, stored(nil, run(int(seq), testBlock), uint64(seq+1)))); err != nil {
			t.Fatal(err)
		}
	}
	f.Restart(77)
	if h := f.Head(); h != (Head{Epoch: 77, Seq: -1}) {
		t.Errorf("head %+v", h)
	}
	if _, _, err := f.At(3); err == nil {
		t.Error("a sequence number of the incarnation before is answered")
	}
	if d := f.Digests(0, make([]contract.TruthDigest, 0, 10)); len(d) != 0 {
		t.Errorf("digests %+v", d)
	}
	if err := f.Apply(0, 9, encode(t, stored(nil, run(1, testBlock), 3))); err != nil {
		t.Fatal(err)
	}
	if set, h, err := f.At(0); err != nil || len(set) != 1 || h.Epoch != 77 || h.Seq != 0 {
		t.Errorf("%v, %+v, %v", set, h, err)
	}
	if j := f.Journal(0, make([]contract.TruthJournal, 0, 10)); len(j) != 1 || j[0].MonoNs != 9 {
		t.Errorf("journal %+v", j)
	}
}

func TestRequestLogPagesAndForgets(t *testing.T) {
	q := NewRequests()
	for range RequestRing + 10 {
		q.Add(contract.TruthRequest{Outcome: contract.OutcomeLength})
	}
	got := q.Page(0, make([]contract.TruthRequest, 0, 3))
	if len(got) != 3 || got[0].N != 10 || got[2].N != 12 {
		t.Errorf("first page %+v", got)
	}
	got = q.Page(RequestRing+9, make([]contract.TruthRequest, 0, 3))
	if len(got) != 1 || got[0].N != RequestRing+9 {
		t.Errorf("last page %+v", got)
	}
}

// FuzzApply folds whatever arrives, twice, and takes it back: sums fit their sets at any time, and before the
// first batch there was nothing.
func FuzzApply(f *testing.F) {
	toks := run(7, 2*testBlock)
	window := testEvent{kind: "BlockStored", hashes: []uint64{2}, tokens: toks, group: 1, spec: "sliding_window"}
	f.Add(encode(f, stored(nil, toks, 1, 2), removed(1), window, testEvent{kind: "BlockRemoved", hashes: []uint64{2}, group: 1}))
	f.Add(encode(f, stored(nil, toks, 1, 1), testEvent{kind: "AllBlocksCleared"}, stored(ptr(uint64(1)), toks[:testBlock], 3)))
	f.Add(encode(f, testEvent{kind: "BlockStored", hashes: []uint64{5}, tokens: []uint32{}, medium: "CPU"}))
	f.Fuzz(func(t *testing.T, payload []byte) {
		fold := NewFold(testBlock)
		for seq := range int64(2) {
			_ = fold.Apply(seq, seq, payload) // what cannot be read is an empty batch
			heads, _ := fold.Heads()
			sets, head := fold.Sets()
			for i, s := range sets {
				if h := heads[i]; h.Blocks != len(s.Blocks) || h.Digest != digest(s.Blocks) || i == 0 && h.Digest != head.Digest {
					t.Fatalf("set %s %s has %d blocks, its head is %+v", s.Tier, s.Class, len(s.Blocks), h)
				}
			}
		}
		sets, head, err := fold.At(-1)
		if err != nil || head.Blocks != 0 {
			t.Fatalf("before the first batch: %+v, %v", head, err)
		}
		for _, s := range sets {
			if len(s.Blocks) > 0 {
				t.Fatalf("before the first batch %s %s had %+v", s.Tier, s.Class, s.Blocks)
			}
		}
	})
}

// BenchmarkApply is a batch that stores 64 blocks and removes the 64 that have been there longest, in a set of
// 16,384, as a full pool does.
func BenchmarkApply(b *testing.B) {
	const n, size, held = 64, 16, 16_384
	f := NewFold(size)
	toks := make([]uint32, n*size)
	for i := range toks {
		toks[i] = uint32(i * 97 % tokens.Vocab)
	}
	hashes := func(batch int) []uint64 {
		out := make([]uint64, n)
		for i := range out {
			out[i] = tokens.DigestTerm(uint64(batch*n + i + 1))
		}
		return out
	}
	// Twice as many batches as are held, over and over: what one round stores it removes before it comes again.
	const round = 2 * held / n
	payloads := make([][]byte, round)
	for i := range payloads {
		store := testEvent{kind: "BlockStored", hashes: hashes(i), tokens: toks}
		payload := encode(b, store, removed(hashes((i+held/n)%round)...))
		payloads[i] = bytes.Replace(payload, []byte("block_size\x04"), []byte("block_size\x10"), 1)
	}
	b.ReportAllocs()
	seq := int64(0)
	for b.Loop() {
		if err := f.Apply(seq, seq, payloads[seq%round]); err != nil {
			b.Fatal(err)
		}
		seq++
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(seq*n), "ns/block")
	if s := f.Skipped(); s.Unknown > held || s.Other+s.Orphans > 0 {
		b.Fatalf("skipped %+v", s)
	}
}
