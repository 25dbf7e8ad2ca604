package trace

import (
	"encoding/binary"
	"hash/crc32"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"fleetdrill/internal/tokens"
	"fleetdrill/oracle"
)

// Prompts of old runs must be made again byte for byte: these values may never change.
func TestTokensGolden(t *testing.T) {
	for _, c := range []struct {
		id   uint64
		want [3]uint32
	}{
		{0, [3]uint32{99219, 45937, 106615}},
		{1, [3]uint32{56102, 69118, 143375}},
		{182_789, [3]uint32{30318, 93573, 61091}},
		{maxID, [3]uint32{37844, 4788, 28904}},
	} {
		got := Tokens(nil, &Row{Input: 3, IDs: []uint64{c.id}})
		if !slices.Equal(got, c.want[:]) {
			t.Errorf("id %d: %v, want %v", c.id, got, c.want)
		}
	}
	var raw []byte
	for id := range uint64(1000) {
		for _, token := range Tokens(nil, &Row{Input: BlockTokens, IDs: []uint64{id}}) {
			raw = binary.LittleEndian.AppendUint32(raw, token)
		}
	}
	if got, want := crc32.ChecksumIEEE(raw), uint32(0xcd3e7676); got != want {
		t.Errorf("ids 0-999: CRC-32 %#x, want %#x", got, want)
	}
}

func TestPromptsShareWhatTheirIdsSay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		row := drawRow(t)
		prompt := Tokens([]uint32{42}, &row)[1:]
		if len(prompt) != row.Input {
			t.Fatalf("%d tokens, want %d", len(prompt), row.Input)
		}
		if text := tokens.Decode(prompt); !slices.Equal(tokens.Encode(text), prompt) {
			t.Fatal("the prompt does not survive a round trip through text")
		}
		// Another prompt of the same ids, cut elsewhere, is the same up to the cut.
		cut := row
		cut.Input = rapid.IntRange(1, row.Input).Draw(t, "cut")
		cut.IDs = row.IDs[:blocks(cut.Input)]
		if other := Tokens(nil, &cut); !slices.Equal(other, prompt[:cut.Input]) {
			t.Fatalf("cut at %d of %d tokens it is another prompt", cut.Input, row.Input)
		}
	})
}

// At a block size of 16, the finest in use, no two blocks of different ids may be equal: that would be
// sharing that the trace does not have. 4,000 ids have 128,000 blocks.
func TestDifferentIdsShareNothing(t *testing.T) {
	const size = 16
	seen := make(map[uint64]bool)
	row := Row{Input: BlockTokens, IDs: []uint64{0}}
	var prompt []uint32
	for id := range uint64(4000) {
		row.IDs[0] = id
		prompt = Tokens(prompt[:0], &row)
		for _, h := range tokens.AppendChain(nil, prompt, size, 0) {
			if seen[h] {
				t.Fatalf("a block of id %d was seen before", id)
			}
			seen[h] = true
		}
	}
}

// BenchmarkTokens makes a prompt of 12,000 tokens, about the mean of the public conversation trace.
func BenchmarkTokens(b *testing.B) {
	row := Row{Input: 12_000}
	for i := range blocks(row.Input) {
		row.IDs = append(row.IDs, uint64(i))
	}
	var prompt []uint32
	b.ReportAllocs()
	for b.Loop() {
		prompt = Tokens(prompt[:0], &row)
	}
	if len(prompt) != row.Input {
		b.Fatalf("%d tokens", len(prompt))
	}
}

// What ids share is what an engine can reuse, at any of its block sizes that divides 512: the built-in
// trace's partial blocks are shared by nobody, so the two matches are the same number of tokens.
func TestEnginesSeeTheSharingOfTheIds(t *testing.T) {
	for _, size := range []int{16, 64, 512} {
		r, err := Default(Options{Rows: Rows{Count: 200}})
		if err != nil {
			t.Fatal(err)
		}
		rows, _ := all(r)
		var ids, engine oracle.Unbounded
		var prompt []uint32
		shared := 0
		for _, row := range rows {
			prompt = Tokens(prompt[:0], &row)
			want := ids.Serve(row.IDs) * BlockTokens
			if got := engine.Serve(tokens.AppendChain(nil, prompt, size, 0)) * size; got != want {
				t.Fatalf("row %d: an engine of block size %d could reuse %d tokens, the ids say %d", row.N, size, got, want)
			}
			shared += want
		}
		if shared == 0 {
			t.Fatal("nothing is shared")
		}
	}
}
