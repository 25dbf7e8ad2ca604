package events

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"fleetdrill/internal/contract"
	"fleetdrill/internal/tokens"
)

// ids are n token ids that differ between starts.
func ids(start uint32, n int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = start + uint32(i)
	}
	return out
}

// store is an ordinary root store of len(hashes) blocks of 4 tokens, changed by edits.
func store(hashes []uint64, edits ...func(*Event)) Event {
	e := Event{Kind: Stored, Hashes: hashes, Tokens: ids(100, 4*len(hashes)), BlockSize: 4, Medium: "GPU"}
	for _, edit := range edits {
		edit(&e)
	}
	return e
}

func group(idx int64, kind string) func(*Event) {
	return func(e *Event) { e.HasGroup, e.Group, e.SpecKind = true, idx, kind }
}

func under(parent uint64) func(*Event) {
	return func(e *Event) { e.HasParent, e.Parent = true, parent }
}

func removal(idx int64, hashes ...uint64) Event {
	return Event{Kind: Removed, Hashes: hashes, Medium: "GPU", HasGroup: true, Group: idx}
}

// apply normalises one batch and copies the result.
func apply(t *testing.T, n *Normalizer, events ...Event) []Op {
	t.Helper()
	var out []Op
	for _, op := range n.Normalize(&Batch{Events: events}) {
		checkOp(t, op)
		op.Hashes, op.Contents = slices.Clone(op.Hashes), slices.Clone(op.Contents)
		out = append(out, op)
	}
	return out
}

func wantOps(t *testing.T, want, got []Op) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("operations (-want +got):\n%s", diff)
	}
}

func TestEveryDropReason(t *testing.T) {
	edit := func(f func(*Event)) Event { return store([]uint64{1, 2}, f) }
	cases := []struct {
		reason string
		event  Event
	}{
		{contract.DropOwnership, edit(func(e *Event) { e.Owner = "KVcr" })},
		{contract.DropOwnership, Event{Kind: Cleared, Owner: "kvcr"}},
		{contract.DropLocality, edit(func(e *Event) { e.Locality = "REMOTE" })},
		{contract.DropMedium, edit(func(e *Event) { e.Medium = "TAPE" })},
		{contract.DropMedium, Event{Kind: Removed, Hashes: []uint64{1}, Medium: "TAPE"}},
		{contract.DropPlaceholder, edit(func(e *Event) { e.Hashes = nil })},
		{contract.DropPlaceholder, edit(func(e *Event) { e.Tokens, e.BlockSize = nil, 0 })},
		{contract.DropPlaceholder, edit(func(e *Event) { e.Tokens, e.BlockSize, e.Medium = nil, 0, "DISK" })},
		{contract.DropPlaceholder, Event{Kind: Removed, Medium: "GPU"}},
		{contract.DropUnaligned, edit(func(e *Event) { e.Tokens = e.Tokens[:7] })},
		{contract.DropUnaligned, edit(func(e *Event) { e.Tokens = e.Tokens[:4] })},
		{contract.DropUnaligned, edit(func(e *Event) { e.BlockSize = 0 })},
		{contract.DropSelfReferencing, edit(under(2))},
		{contract.DropSelfReferencing, store([]uint64{1, 2, 1})},
		{contract.DropSelfReferencing, store(append(longList(40), 7), func(e *Event) { e.Hashes[40] = e.Hashes[0] })},
		{contract.DropTier, edit(func(e *Event) { e.Medium = "cpu_tier2" })},
		{contract.DropTier, Event{Kind: Removed, Hashes: []uint64{1}, Medium: "STORAGE"}},
		{contract.DropTier, edit(func(e *Event) { e.Medium = "external" })},
		{contract.DropBlockSize, edit(func(e *Event) { e.BlockSize = 2 })},
		{contract.DropNamespace, edit(func(e *Event) { e.LoRAID = 3 })},
		{contract.DropNamespace, edit(func(e *Event) { e.ExtraKeys = [][]Key{{{Text: "img", HasOffset: true}}, nil} })},
		{contract.DropGroup, edit(group(1, "sliding_window"))},
		{contract.DropGroup, removal(1, 1)},
	}
	for i, c := range cases {
		t.Run(fmt.Sprintf("%d %s", i, c.reason), func(t *testing.T) {
			n := NewNormalizer(4)
			apply(t, n, store([]uint64{90}, group(0, "full_attention")), store([]uint64{91}, group(1, "sliding_window")))
			before := n.Drops()
			wantOps(t, nil, apply(t, n, c.event))
			after := n.Drops()
			after[c.reason]--
			if after[c.reason] == 0 {
				delete(after, c.reason)
			}
			if diff := cmp.Diff(before, after); diff != "" {
				t.Fatalf("counts beside %s changed:\n%s", c.reason, diff)
			}
			if !slices.Contains(contract.DropReasons, c.reason) {
				t.Fatalf("%s is not in the closed list", c.reason)
			}
		})
	}
}

func longList(n uint64) (out []uint64) {
	for i := range n {
		out = append(out, 1000+i)
	}
	return out
}

func TestStoresAndRemovalsInOrder(t *testing.T) {
	n := NewNormalizer(0)
	got := apply(t, n,
		removal(0, 7), removal(0, 8, 9), // one per hash on the wire, one operation here
		store([]uint64{1, 2}),
		store([]uint64{3}, under(2)),
		Event{Kind: Cleared},
		removal(0, 1))
	chain := tokens.AppendChain(nil, ids(100, 8), 4, 0)
	wantOps(t, []Op{
		{Kind: Removed, Hashes: []uint64{7, 8, 9}},
		{Kind: Stored, Hashes: []uint64{1, 2}, Contents: chain},
		{Kind: Stored, HasParent: true, Parent: 2, Hashes: []uint64{3}, Contents: chain[:1]},
		{Kind: Cleared},
		{Kind: Removed, Hashes: []uint64{1}},
	}, got)
}

func TestNamespaceGoesIntoTheRootOnly(t *testing.T) {
	plain := tokens.AppendChain(nil, ids(100, 8), 4, 0)
	lora := func(e *Event) { e.LoRAID, e.LoRAName = 1, "adapter" }
	keys := func(first ...string) func(*Event) {
		return func(e *Event) {
			e.ExtraKeys = make([][]Key, len(e.Hashes))
			for _, k := range first {
				e.ExtraKeys[0] = append(e.ExtraKeys[0], Key{Text: k})
			}
		}
	}
	for _, c := range []struct {
		name string
		e    Event
		ns   uint64
	}{
		{"none", store([]uint64{1, 2}), 0},
		{"adapter", store([]uint64{1, 2}, lora, keys("adapter")), tokens.Namespace("", "adapter", "")},
		{"salt in the extra keys", store([]uint64{1, 2}, keys("salt")), tokens.Namespace("", "", "salt")},
		{"salt as a field", store([]uint64{1, 2}, func(e *Event) { e.Salt = "salt" }), tokens.Namespace("", "", "salt")},
		{"adapter and salt", store([]uint64{1, 2}, lora, keys("adapter", "salt")), tokens.Namespace("", "adapter", "salt")},
		{"salt called like the adapter", store([]uint64{1, 2}, lora, keys("adapter", "adapter")), tokens.Namespace("", "adapter", "adapter")},
		{"a child's is its parent's", store([]uint64{1, 2}, lora, keys("adapter"), under(9)), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := apply(t, NewNormalizer(4), c.e)
			want := []uint64{tokens.Root(c.ns, plain[0]), plain[1]}
			if len(got) != 1 || !slices.Equal(got[0].Contents, want) {
				t.Fatalf("got %+v, want contents %v", got, want)
			}
		})
	}
}

// An image makes its block, and everything behind it, something else than its tokens.
func TestBlocksInFrontOfAnImageStay(t *testing.T) {
	n := NewNormalizer(4)
	got := apply(t, n, store([]uint64{1, 2, 3}, func(e *Event) {
		e.ExtraKeys = [][]Key{nil, {{Text: "img", HasOffset: true, Offset: 2}}, {{Text: "img", HasOffset: true, Offset: -2}}}
	}))
	wantOps(t, []Op{{Kind: Stored, Hashes: []uint64{1}, Contents: tokens.AppendChain(nil, ids(100, 4), 4, 0)}}, got)
	if got := n.Drops()[contract.DropNamespace]; got != 1 {
		t.Fatalf("namespace drops %d, want 1", got)
	}
}

// The window group's store comes first in a step; its kind and the main group's are known before either
// is judged.
func TestGroupsAreLearnedBeforeTheyAreUsed(t *testing.T) {
	n := NewNormalizer(4)
	got := apply(t, n, store([]uint64{1}, group(1, "sliding_window")), store([]uint64{1}, group(0, "mla_attention")))
	if len(got) != 1 || n.Drops()[contract.DropGroup] != 1 {
		t.Fatalf("got %+v and drops %v, want the main store alone", got, n.Drops())
	}
	// Removals carry no kind. The window group's would take the main block of the same hash away.
	wantOps(t, []Op{{Kind: Removed, Hashes: []uint64{1}}}, apply(t, n, removal(1, 1), removal(0, 1)))
}

func TestWindowOnlyRankUntilAMainGroupAppears(t *testing.T) {
	n := NewNormalizer(4)
	if got := apply(t, n, store([]uint64{1}, group(0, "sliding_window")), store([]uint64{2}, group(0, "sliding_window"))); len(got) != 2 {
		t.Fatalf("a window-only rank's stores: %+v", got)
	}
	wantOps(t, []Op{{Kind: Removed, Hashes: []uint64{2}}}, apply(t, n, removal(0, 2)))
	apply(t, n, store([]uint64{5}, group(1, "full_attention")))
	// Of what the window group announced, only 1 is still out there.
	wantOps(t, []Op{{Kind: Removed, Hashes: []uint64{1}}}, apply(t, n, removal(0, 1, 5), removal(0, 1)))
}

// Fewer hashes than blocks name the tail. The blocks in front get names of ours for as long as it takes to
// place the tail behind them.
func TestTailAlignedStore(t *testing.T) {
	e := store([]uint64{8, 9}, under(7), func(e *Event) { e.Tokens = ids(100, 16) })
	got := apply(t, NewNormalizer(4), e)
	if len(got) != 2 || len(got[0].Hashes) != 4 {
		t.Fatalf("got %+v, want a store of four blocks and a removal", got)
	}
	ours := got[0].Hashes[:2]
	wantOps(t, []Op{
		{Kind: Stored, HasParent: true, Parent: 7, Hashes: []uint64{ours[0], ours[1], 8, 9}, Contents: tokens.AppendChain(nil, ids(100, 16), 4, 0)},
		{Kind: Removed, Hashes: ours},
	}, got)
}

func TestBlockSizeIsLearnedAndForgottenWithTheIncarnation(t *testing.T) {
	n := NewNormalizer(0)
	eight := store([]uint64{3}, func(e *Event) { e.BlockSize, e.Tokens = 8, ids(1, 8) })
	apply(t, n, store([]uint64{1}))
	wantOps(t, nil, apply(t, n, eight))
	n.Restart(0)
	if got := apply(t, n, eight); len(got) != 1 || n.Drops()[contract.DropBlockSize] != 1 {
		t.Fatalf("after a restart: %+v, drops %v", got, n.Drops())
	}
}

func TestUnreadableEventsAreCounted(t *testing.T) {
	n := NewNormalizer(4)
	n.Normalize(&Batch{Malformed: 2, UnknownType: 3})
	n.Drop(contract.DropBadFrames)
	want := map[string]int64{contract.DropMalformed: 2, contract.DropUnknownType: 3, contract.DropBadFrames: 1}
	if diff := cmp.Diff(want, n.Drops()); diff != "" {
		t.Fatal(diff)
	}
}

// BenchmarkPayloadToOps reads map events of vLLM 0.25 and names their blocks: stores of 64 blocks of 16
// tokens, and as many removals, each its own event.
func BenchmarkPayloadToOps(b *testing.B) {
	const blocks = 64
	batch := Batch{TS: 1757500000.25, Rank: 0}
	for i := range uint64(blocks) {
		batch.Events = append(batch.Events, removal(0, 0xdead_beef_0000_0000+i))
	}
	hashes := longList(blocks)
	for i := range hashes {
		hashes[i] |= 0xdead_beef_0000_0000
	}
	batch.Events = append(batch.Events, store(hashes, group(0, "full_attention"),
		func(e *Event) { e.Tokens, e.BlockSize, e.ExtraKeys = ids(70_000, 16*blocks), 16, make([][]Key, blocks) }))
	payload := encode(batch, true, false, false)
	n := NewNormalizer(16)
	var decoded Batch
	b.SetBytes(int64(len(payload)))
	b.ReportAllocs()
	for b.Loop() {
		if err := decoded.Decode(payload); err != nil {
			b.Fatal(err)
		}
		if ops := n.Normalize(&decoded); len(ops) != 2 {
			b.Fatal(len(ops))
		}
	}
	b.ReportMetric(float64(b.N)*2*blocks/b.Elapsed().Seconds(), "blocks/s")
}

func on(medium string) func(*Event) { return func(e *Event) { e.Medium = medium } }

// Host copies are told by name alone, or like the device's; both are operations on the host.
func TestHostTier(t *testing.T) {
	n := NewNormalizer(4)
	offload := func(hashes ...uint64) Event { return Event{Kind: Stored, Hashes: hashes, Medium: "CPU"} }
	evict := func(medium string, hashes ...uint64) Event {
		return Event{Kind: Removed, Hashes: hashes, Medium: medium}
	}
	described := store([]uint64{7}, on("cpu_pinned"), under(2))
	got := apply(t, n, store([]uint64{1, 2}), evict("GPU", 1), evict("GPU", 2), offload(1), offload(2), evict("CPU", 9), evict("CPU_TIER1", 1), described)
	wantOps(t, []Op{
		{Kind: Stored, Hashes: []uint64{1, 2}, Contents: tokens.AppendChain(nil, ids(100, 8), 4, 0)},
		{Kind: Removed, Hashes: []uint64{1, 2}},
		{Kind: Attached, Host: true, Hashes: []uint64{1, 2}},
		{Kind: Removed, Host: true, Hashes: []uint64{9, 1}},
		{Kind: Stored, Host: true, HasParent: true, Parent: 2, Hashes: []uint64{7}, Contents: tokens.AppendChain(nil, ids(100, 4), 4, 0)},
	}, got)
	if d := n.Drops(); len(d) != 0 {
		t.Errorf("dropped: %v", d)
	}
}

// An offload of a model that has only windows names no group. It must not pass for a main group, which would
// end the windows' stores.
func TestOffloadsAreNoGroup(t *testing.T) {
	n := NewNormalizer(4)
	windowed := group(0, "sliding_window")
	described := store([]uint64{1}, on("CPU"))
	if ops := apply(t, n, store([]uint64{1}, windowed), described, store([]uint64{2}, windowed)); len(ops) != 3 || !ops[1].Host {
		t.Errorf("%+v", ops)
	}
	if ops := apply(t, n, Event{Kind: Removed, Hashes: []uint64{1}, Medium: "CPU"}, removal(0, 1)); len(ops) != 2 {
		t.Errorf("%+v", ops)
	}
}
