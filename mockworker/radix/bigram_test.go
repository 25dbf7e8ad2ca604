package radix

import (
	"encoding/hex"
	"strings"
	"testing"

	"fleetdrill/mockworker/blockhash"
	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/wire"
)

// The page (1,2) (2,3) ... (16,17) has this hash in SGLang, and its event lists the pairs.
func TestBigramPage(t *testing.T) {
	e, err := New(Config{Bigram: true, Config: engine.Config{
		BlockSize: 16, NumBlocks: 4, MaxNumSeqs: 1, MaxNumBatchedTokens: 64, MaxModelLen: 64,
		EnablePrefixCaching: true, Hasher: blockhash.NewSGLang(),
	}})
	if err != nil {
		t.Fatal(err)
	}
	e.Step(0) // the clear
	ids := make([]uint32, 17)
	for i := range ids {
		ids[i] = uint32(i + 1)
	}
	// Hashes of plain pages, made beforehand, are of no use.
	plain := blockhash.NewSGLang().Next(blockhash.Digest{}, ids[:16], blockhash.Extra{})
	if err := e.Add(0, engine.Request{ID: "r", Tokens: ids, MaxTokens: 1, Hashes: []blockhash.Digest{plain}}); err != nil {
		t.Fatal(err)
	}
	events := e.Step(0).Events
	if len(events) != 1 || len(events[0].Hashes) != 1 {
		t.Fatalf("%+v", events)
	}
	if got := int64(events[0].Hashes[0].EventInt()); got != -7316793502406646264 {
		t.Errorf("hash %d", got)
	}
	enc, err := wire.New("sglang-map", wire.Options{IntHashes: true})
	if err != nil {
		t.Fatal(err)
	}
	got := hex.EncodeToString(enc.AppendBatch(nil, 0, events))
	// "token_ids", an array of 16 pairs, ..., 15 and 16, 16 and 17, "block_size".
	for _, want := range []string{"a9746f6b656e5f696473dc0010920102920203920304", "920f10921011aa626c6f636b5f73697a65"} {
		if !strings.Contains(got, want) {
			t.Errorf("the payload %s lacks %s", got, want)
		}
	}
}
