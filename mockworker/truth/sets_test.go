package truth

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"fleetdrill/internal/contract"
	"fleetdrill/internal/tokens"
)

// Each tier and class has a set of its own under the same hashes: placeholders of the host tier, a window
// with holes, and removals that tell their group only.
func TestFoldKeepsTiersAndClassesApart(t *testing.T) {
	f := NewFold(testBlock)
	toks := run(7, 3*testBlock)
	chain := tokens.AppendChain(nil, toks, testBlock, 0)
	window := func(ev testEvent) testEvent {
		ev.group, ev.spec = 1, "sliding_window"
		return ev
	}
	placeholder := testEvent{kind: "BlockStored", hashes: []uint64{10, 11}, tokens: []uint32{}, medium: "CPU"}
	described := stored(ptr(uint64(11)), toks[2*testBlock:], 12)
	described.medium = "CPU"
	for seq, payload := range [][]byte{
		encode(t, stored(nil, toks, 10, 11, 12), window(stored(nil, toks, 11, 12)), placeholder),
		encode(t, testEvent{kind: "BlockRemoved", hashes: []uint64{11}, group: 1},
			testEvent{kind: "BlockRemoved", hashes: []uint64{10}, medium: "CPU"}, described, window(testEvent{kind: "BlockStored", hashes: []uint64{}, parent: ptr(uint64(12)), tokens: toks})),
	} {
		if err := f.Apply(int64(seq), int64(seq), payload); err != nil {
			t.Fatal(err)
		}
	}
	sets, head := f.Sets()
	want := []Set{
		{TierDevice, ClassMain, map[uint64]Entry{
			10: {Content: chain[0], Copies: 1},
			11: {Parent: 10, Content: chain[1], Position: 1, Copies: 1},
			12: {Parent: 11, Content: chain[2], Position: 2, Copies: 1},
		}},
		{TierDevice, ClassWindow, map[uint64]Entry{12: {Position: NoPosition, Copies: 1, Group: 1}}},
		{TierHost, ClassMain, map[uint64]Entry{
			11: {Position: NoPosition, Copies: 1},
			12: {Parent: 11, Content: chain[2], Position: 2, Copies: 1}, // its parent's place is known on the device
		}},
	}
	if diff := cmp.Diff(want, sets); diff != "" {
		t.Errorf("sets (-want +got):\n%s", diff)
	}
	if head.Blocks != 3 || head.Digest != digest(want[0].Blocks) || f.Skipped() != (Skips{}) {
		t.Errorf("head %+v, skips %+v", head, f.Skipped())
	}
	line := f.Journal(1, make([]contract.TruthJournal, 0, 1))[0]
	if len(line.Stored) != 0 || len(line.Removed) != 0 || len(line.Others) != 2 || line.Others[0].Removed[0] != 11 {
		t.Errorf("journal line %+v", line)
	}
}

// A set that only the engine knows is told too, with nothing announced of it.
func TestSharedTellsSetsThatNobodyAnnounced(t *testing.T) {
	f := NewFold(testBlock)
	if err := f.Apply(0, 0, encode(t, stored(nil, run(7, 2*testBlock), 10, 11))); err != nil {
		t.Fatal(err)
	}
	heads, shared, at := f.Shared([]Resident{
		{Tier: TierDevice, Class: ClassMain, Hashes: []uint64{11, 12}},
		{Tier: TierHost, Class: ClassMain, Hashes: []uint64{10}},
	})
	want := []SetHead{{TierDevice, ClassMain, 2, at.Digest}, {Tier: TierHost, Class: ClassMain}}
	if diff := cmp.Diff(want, heads); diff != "" || shared[0] != 1 || shared[1] != 0 {
		t.Errorf("shared %v, heads (-want +got):\n%s", shared, diff)
	}
}
