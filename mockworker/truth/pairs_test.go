package truth

import (
	"bytes"
	"testing"

	"fleetdrill/internal/tokens"
	"fleetdrill/mockworker/blockhash"
	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/wire"
)

// A page of token pairs is folded by the text that the pairs cover; a pair of three makes the payload
// unreadable.
func TestPairsOfTokens(t *testing.T) {
	enc, err := wire.New("sglang-map", wire.Options{IntHashes: true})
	if err != nil {
		t.Fatal(err)
	}
	hashes := []blockhash.Digest{blockhash.FromInt(7), blockhash.FromInt(8)}
	payload := enc.AppendBatch(nil, 1, []engine.Event{{
		Kind: engine.Stored, Hashes: hashes, Tokens: []uint32{1, 200, 70_000, 4, 5}, Bigram: true, BlockSize: 2,
		Medium: engine.MediumGPU, Group: engine.NoGroup,
	}})
	f := NewFold(2)
	if err := f.Apply(0, 1, payload); err != nil {
		t.Fatal(err)
	}
	announced, _ := f.Announced()
	for i, text := range [][]uint32{{1, 200}, {70_000, 4}} {
		if got, want := announced[uint64(7+i)].Content, tokens.ContentHash(text); got != want {
			t.Errorf("page %d has content %d, want that of %v", i, got, text)
		}
	}
	at := bytes.LastIndexByte(payload, pairMark)
	payload[at] = 0x93
	if err := f.Apply(1, 2, payload); err == nil {
		t.Error("a pair of three is read")
	}
}
