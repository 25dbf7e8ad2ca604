package twist

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/vmihailenco/msgpack/v5"

	"fleetdrill/internal/shared"
	"fleetdrill/mockworker/blockhash"
	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/wire"
)

// TestStories shows each twist of one batch, in both encodings that engines have: two blocks stored behind
// another one, and one removed.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			b, err := Parse(sample(t, d.CmdArgs[0].Key))
			if err != nil {
				t.Fatal(err)
			}
			if !apply(t, b, d.Cmd, d.CmdArgs[0].Key) {
				return "nothing to do"
			}
			return show(t, b.Bytes())
		})
	})
}

func anyMedium(string) bool { return true }

func isHost(medium string) bool { return medium != engine.MediumGPU && medium != "" }

func apply(t *testing.T, b *Batch, name, profile string) bool {
	switch name {
	case "as-it-is":
		return true
	case "drop-removals":
		return b.DropRemovals(anyMedium) == 1
	case "drop-host-removals":
		return b.DropRemovals(isHost) > 0
	case "drop-stores":
		return b.DropStores(func(medium string) bool { return !isHost(medium) }) == 2
	case "stale-store":
		return b.StaleStore(slices.Values([][]byte{sample(t, profile), before(t, profile)}))
	case "stale-store-without-past":
		return b.StaleStore(slices.Values([][]byte{sample(t, profile), {0xc1}}))
	case "duplicate-store":
		return b.DuplicateStore()
	case "duplicate-hash":
		return b.DuplicateHash()
	case "unknown-event":
		return b.UnknownEvent()
	case "unknown-field":
		return b.UnknownField()
	case "unknown-element":
		return b.UnknownElement()
	case "unknown-parent":
		return b.UnknownParent()
	case "mask-part":
		return b.Mask(false)
	case "mask-all":
		return b.Mask(true)
	}
	field, ok := strings.CutPrefix(name, "corrupt-")
	if !ok {
		t.Fatalf("unknown command %q", name)
	}
	return b.Corrupt(field)
}

// sample is the batch of the stories, of blocks of two tokens.
func sample(t testing.TB, profile string) []byte {
	enc, err := wire.New(profile, wire.Options{IntHashes: true})
	if err != nil {
		t.Fatal(err)
	}
	of := func(n uint64) blockhash.Digest { return blockhash.FromInt(n << 60) }
	first := of(1)
	return enc.AppendBatch(nil, 1757500000.25, []engine.Event{
		{Kind: engine.Removed, Hashes: []blockhash.Digest{of(9)}, Medium: engine.MediumGPU},
		{
			Kind: engine.Stored, Hashes: []blockhash.Digest{of(2), of(3)}, Parent: &first, Tokens: []uint32{21, 22, 31, 32}, BlockSize: 2,
			ExtraKeys: make([]engine.ExtraKey, 2), SpecKind: engine.KindFullAttention, Medium: engine.MediumGPU,
		},
	})
}

// before is an earlier batch, which stored the block that sample removes, last of three behind a first one.
func before(t testing.TB, profile string) []byte {
	enc, err := wire.New(profile, wire.Options{IntHashes: true})
	if err != nil {
		t.Fatal(err)
	}
	of := func(n uint64) blockhash.Digest { return blockhash.FromInt(n << 60) }
	first := of(6)
	return enc.AppendBatch(nil, 1757500000, []engine.Event{{
		Kind: engine.Stored, Hashes: []blockhash.Digest{of(7), of(8), of(9)}, Parent: &first, Tokens: []uint32{71, 72, 81, 82, 91, 92}, BlockSize: 2,
		ExtraKeys: make([]engine.ExtraKey, 3), SpecKind: engine.KindFullAttention, Medium: engine.MediumGPU,
	}})
}

// show writes a payload with every event on a line of its own, hashes by their first four bits.
func show(t *testing.T, payload []byte) string {
	root, rest, err := parse(payload, 0)
	if err != nil || len(rest) > 0 {
		return fmt.Sprintf("no MessagePack: %v", err)
	}
	var out strings.Builder
	if root.items[1].shape == scalar {
		return fmt.Sprintf("events are % x", root.items[1].raw)
	}
	for _, e := range root.items[1].items {
		fmt.Fprintln(&out, words(t, e))
	}
	for i, v := range root.items[2:] {
		fmt.Fprintf(&out, "element %d: %s\n", i+2, words(t, v))
	}
	return out.String()
}

func words(t *testing.T, v value) string {
	var parts []string
	for _, item := range v.items {
		parts = append(parts, words(t, item))
	}
	switch v.shape {
	case array:
		return "[" + strings.Join(parts, " ") + "]"
	case object:
		for i := 0; i < len(parts); i += 2 {
			parts[i/2] = parts[i] + "=" + parts[i+1]
		}
		return "{" + strings.Join(parts[:len(parts)/2], " ") + "}"
	}
	var x any
	if err := msgpack.Unmarshal(v.raw, &x); err != nil {
		t.Fatalf("% x: %v", v.raw, err)
	}
	switch n := x.(type) {
	case uint64:
		if low := n << 4; low != 0 {
			return fmt.Sprintf("#%d..%x", n>>60, n&0xff)
		}
		return fmt.Sprintf("#%d", n>>60)
	case int64:
		if n < 0 {
			return fmt.Sprintf("#%d", uint64(n)>>60)
		}
	case []byte:
		return hex.EncodeToString(n)
	}
	return fmt.Sprint(x)
}

// What is not changed is the engine's, byte for byte, whichever engine it is.
func TestUnchangedIsTheSame(t *testing.T) {
	n := 0
	for _, payload := range golden(t) {
		b, err := Parse(payload)
		if err != nil {
			continue // the map-shaped batch of one source revision, which nobody sends
		}
		n++
		if got := b.Bytes(); !bytes.Equal(got, payload) {
			t.Errorf("% x\nbecame % x", payload, got)
		}
	}
	if n < 50 {
		t.Errorf("only %d golden payloads were read", n)
	}
}

func golden(t testing.TB) (payloads [][]byte) {
	text, err := os.ReadFile(shared.Path(t, "vectors/event_payloads.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		var v struct {
			Payload string `json:"payload_hex"`
		}
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatal(err)
		}
		payload, err := hex.DecodeString(v.Payload)
		if err != nil {
			t.Fatal(err)
		}
		payloads = append(payloads, payload)
	}
	return payloads
}

// A cleared event has no blocks: what is about blocks finds nothing to do, and nothing is invented.
func TestNothingToDo(t *testing.T) {
	enc, err := wire.New("vllm-0.25", wire.Options{IntHashes: true})
	if err != nil {
		t.Fatal(err)
	}
	payload := enc.AppendBatch(nil, 1, []engine.Event{{Kind: engine.Cleared}})
	for _, name := range []string{"duplicate-store", "duplicate-hash", "unknown-event", "unknown-parent", "mask-all", "stale-store", "corrupt-hash", "corrupt-parent", "corrupt-tokens"} {
		b, err := Parse(payload)
		if err != nil {
			t.Fatal(err)
		}
		if apply(t, b, name, "vllm-0.25") || !bytes.Equal(b.Bytes(), payload) {
			t.Errorf("%s changed a cleared event to % x", name, b.Bytes())
		}
	}
}

func TestTruncated(t *testing.T) {
	payload := sample(t, "vllm-0.25")
	for n := range payload {
		if _, err := Parse(payload[:n]); err == nil {
			t.Fatalf("the first %d of %d bytes are read as a whole batch", n, len(payload))
		}
	}
	if got := Truncate(payload); len(got) != len(payload)/2 {
		t.Errorf("cut to %d of %d bytes", len(got), len(payload))
	}
}

// FuzzParse: whatever comes, no panic, and what is read can be twisted in every way and read again.
func FuzzParse(f *testing.F) {
	for _, profile := range wire.Names() {
		f.Add(sample(f, profile))
	}
	f.Add([]byte{0x92, 0, 0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Add(bytes.Repeat([]byte{0x91}, 100))
	f.Fuzz(func(t *testing.T, payload []byte) {
		b, err := Parse(payload)
		if err != nil {
			return
		}
		b.StaleStore(slices.Values([][]byte{payload}))
		b.DropRemovals(anyMedium)
		b.DropStores(isHost)
		for _, change := range []func() bool{b.DuplicateStore, b.DuplicateHash, b.UnknownEvent, b.UnknownField, b.UnknownElement, b.UnknownParent} {
			change()
		}
		for _, name := range []string{"hash", "parent", "tokens"} {
			b.Corrupt(name)
		}
		b.Mask(false)
		b.Mask(true)
		if _, err := Parse(b.Bytes()); err != nil {
			t.Fatalf("% x became % x: %v", payload, b.Bytes(), err)
		}
	})
}
