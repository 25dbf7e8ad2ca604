package wire

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"fleetdrill/internal/shared"
	"fleetdrill/mockworker/blockhash"
	"fleetdrill/mockworker/engine"
)

// row is a line of event_payloads.jsonl: a batch as msgpack would show it, and its exact bytes.
type row struct {
	Profile string          `json:"profile"`
	Note    string          `json:"note"`
	Batch   json.RawMessage `json:"batch"`
	Payload string          `json:"payload_hex"`
}

// event is the union of the fields of a row's events.
type event struct {
	Type      string    `json:"type"`
	Hashes    []hash    `json:"block_hashes"`
	Parent    *hash     `json:"parent_block_hash"`
	Tokens    []uint32  `json:"token_ids"`
	BlockSize int       `json:"block_size"`
	LoRAID    *int      `json:"lora_id"`
	Medium    string    `json:"medium"`
	LoRAName  string    `json:"lora_name"`
	ExtraKeys [][]extra `json:"extra_keys"`
	Group     *int      `json:"group_idx"`
	Kind      string    `json:"kv_cache_spec_kind"`
	Window    int       `json:"kv_cache_spec_sliding_window"`
	Locality  string    `json:"locality"`
	Ownership string    `json:"ownership"`
	Session   string    `json:"session_id"`
	Salt      string    `json:"cache_salt"`
}

// hash is an integer, signed or not, or {"bin": hex}.
type hash struct{ blockhash.Digest }

func (h *hash) UnmarshalJSON(b []byte) error {
	var v uint64
	if json.Unmarshal(b, &v) == nil {
		h.Digest = blockhash.FromInt(v)
		return nil
	}
	var signed int64
	if json.Unmarshal(b, &signed) == nil {
		h.Digest = blockhash.FromInt(uint64(signed))
		return nil
	}
	var bin struct {
		Bin string `json:"bin"`
	}
	if err := json.Unmarshal(b, &bin); err != nil {
		return err
	}
	raw, err := hex.DecodeString(bin.Bin)
	h.Digest = blockhash.FromBytes(raw)
	return err
}

// extra is a text or an [item hash, offset] pair.
type extra struct{ engine.ExtraItem }

func (x *extra) UnmarshalJSON(b []byte) error {
	if json.Unmarshal(b, &x.Text) == nil {
		return nil
	}
	x.IsItem = true
	return json.Unmarshal(b, &[]any{&x.Text, &x.Offset})
}

// slots are the keys of an array event's elements.
var slots = map[string][]string{
	"BlockStored": {"type", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium",
		"lora_name", "extra_keys", "group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window"},
	"BlockRemoved":     {"type", "block_hashes", "medium", "group_idx"},
	"AllBlocksCleared": {"type"},
}

// UnmarshalJSON reads a map event, or an array one as if it were a map. SGLang's metadata map holds keys.
func (ev *event) UnmarshalJSON(b []byte) error {
	type plain event
	var array []json.RawMessage
	if json.Unmarshal(b, &array) != nil {
		return json.Unmarshal(b, (*plain)(ev))
	}
	var kind string
	if err := json.Unmarshal(array[0], &kind); err != nil {
		return err
	}
	if n := len(array) - 1; array[n][0] == '{' {
		if err := json.Unmarshal(array[n], (*plain)(ev)); err != nil {
			return err
		}
		array = array[:n]
	}
	keyed := map[string]json.RawMessage{}
	for i, value := range array {
		keyed[slots[kind][i]] = value
	}
	again, err := json.Marshal(keyed)
	if err != nil {
		return err
	}
	return json.Unmarshal(again, (*plain)(ev))
}

func (ev event) engine(t *testing.T) engine.Event {
	out := engine.Event{
		Tokens: ev.Tokens, BlockSize: ev.BlockSize, LoRAID: ev.LoRAID, LoRAName: ev.LoRAName,
		Group: engine.NoGroup, SpecKind: ev.Kind, SpecWindow: ev.Window, Medium: ev.Medium,
		CacheSalt: ev.Salt, Locality: ev.Locality, Ownership: ev.Ownership, SessionID: ev.Session,
	}
	switch ev.Type {
	case "BlockStored":
		out.Kind = engine.Stored
	case "BlockRemoved":
		out.Kind = engine.Removed
	case "AllBlocksCleared":
		out.Kind = engine.Cleared
	default:
		t.Fatalf("golden row has an event of type %q", ev.Type)
	}
	for _, h := range ev.Hashes {
		out.Hashes = append(out.Hashes, h.Digest)
	}
	if ev.Parent != nil {
		out.Parent = &ev.Parent.Digest
	}
	if ev.Group != nil {
		out.Group = *ev.Group
	}
	for _, items := range ev.ExtraKeys {
		var key engine.ExtraKey
		for _, x := range items {
			key = append(key, x.ExtraItem)
		}
		out.ExtraKeys = append(out.ExtraKeys, key)
	}
	return out
}

// goldenRows is how many golden rows are ever sent: all but those of decode-only.
const goldenRows = 80

// TestGoldenPayloads encodes every golden batch of every profile. Hashes go out in the form the row has
// them, which one row mixes: where a profile has byte hashes, IntHashes is off and an integer stays one.
func TestGoldenPayloads(t *testing.T) {
	checked := map[string]int{}
	total := 0
	for line := range shared.Lines(t, "vectors/event_payloads.jsonl") {
		var r row
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		if r.Profile == "decode-only" {
			continue
		}
		var (
			ts     float64
			events []event
			rank   int
		)
		if err := json.Unmarshal(r.Batch, &[]any{&ts, &events, &rank}); err != nil {
			t.Fatalf("%s: %v", r.Note, err)
		}
		var batch []engine.Event
		for _, ev := range events {
			batch = append(batch, ev.engine(t))
		}
		p, err := lookup(r.Profile)
		if err != nil {
			t.Fatal(err)
		}
		enc, err := New(r.Profile, Options{Rank: rank, IntHashes: p.hashes != anyHash})
		if err != nil {
			t.Fatal(err)
		}
		if got := hex.EncodeToString(enc.AppendBatch(nil, ts, batch)); got != r.Payload {
			t.Errorf("%s, %s:\n got %s\nwant %s", r.Profile, r.Note, got, r.Payload)
		}
		checked[r.Profile]++
		total++
	}
	if total != goldenRows {
		t.Errorf("%d golden rows, expected %d", total, goldenRows)
	}
	for _, name := range Names() {
		if checked[name] < 4 {
			t.Errorf("%s: %d golden rows, expected at least 4", name, checked[name])
		}
	}
}

// The bytes of 03-wires.md that no row has: array clears and removals of a lone full-attention group.
func TestArrayBytes(t *testing.T) {
	hash := []blockhash.Digest{blockhash.FromInt(0x2ceabcfae6d332ea)}
	for _, c := range []struct {
		profile string
		event   engine.Event
		want    string
	}{
		{"vllm-0.23", engine.Event{Kind: engine.Removed, Hashes: hash, Medium: "GPU"},
			"94ac426c6f636b52656d6f76656491cf2ceabcfae6d332eaa347505500"},
		{"vllm-0.23", engine.Event{Kind: engine.Cleared}, "91b0416c6c426c6f636b73436c6561726564"},
		{"vllm-0.9", engine.Event{Kind: engine.Removed, Hashes: hash, Medium: "GPU"},
			"92ac426c6f636b52656d6f76656491cf2ceabcfae6d332ea"},
	} {
		enc, err := New(c.profile, Options{IntHashes: true})
		if err != nil {
			t.Fatal(err)
		}
		got := hex.EncodeToString(enc.AppendBatch(nil, 1757500000.25, []engine.Event{c.event}))
		if !strings.Contains(got, "cb41da305498100000"+"91"+c.want) {
			t.Errorf("%s: %s is not in %s", c.profile, c.want, got)
		}
	}
}

func TestHashForms(t *testing.T) {
	h, err := blockhash.New("sha256_cbor", "0")
	if err != nil {
		t.Fatal(err)
	}
	batch := []engine.Event{{Kind: engine.Removed, Hashes: []blockhash.Digest{h.NoneHash()}, Medium: "GPU"}}
	for form, want := range map[bool]string{
		true:  fmt.Sprintf("91cf%016x", h.NoneHash().EventInt()),
		false: "91c420" + h.NoneHash().String(),
	} {
		enc, err := New("vllm-0.25", Options{IntHashes: form})
		if err != nil {
			t.Fatal(err)
		}
		if got := hex.EncodeToString(enc.AppendBatch(nil, 0, batch)); !strings.Contains(got, want) {
			t.Errorf("IntHashes %v: %s is not in %s", form, want, got)
		}
	}
}

func TestAppendKeepsWhatIsThere(t *testing.T) {
	enc, err := New("vllm-0.25", Options{})
	if err != nil {
		t.Fatal(err)
	}
	one := string(enc.AppendBatch(nil, 1, nil))
	if got := string(enc.AppendBatch([]byte("head"), 1, nil)); got != "head"+one {
		t.Errorf("appended %x, want head and %x", got, one)
	}
}

func TestUnknownProfile(t *testing.T) {
	_, err := New("vllm-0.24", Options{})
	const want = `unknown wire profile "vllm-0.24": have vllm-0.9, vllm-0.11, vllm-0.15, vllm-0.23, vllm-0.25, vllm-0.28, vllm-0.32, sglang-array, sglang-map`
	if err == nil || err.Error() != want {
		t.Errorf("error is %v, want %s", err, want)
	}
}

func TestNoByteHashes(t *testing.T) {
	for _, profile := range []string{"vllm-0.9", "sglang-array", "sglang-map"} {
		if _, err := New(profile, Options{}); err == nil || !strings.Contains(err.Error(), "integer hashes only") {
			t.Errorf("%s: byte hashes give error %v", profile, err)
		}
	}
}

func TestReplayShape(t *testing.T) {
	var topics []string
	for _, name := range Names() {
		enc, err := New(name, Options{IntHashes: true})
		if err != nil {
			t.Fatal(err)
		}
		if enc.ReplayHasTopic() {
			topics = append(topics, name)
		}
	}
	if got := strings.Join(topics, " "); got != "vllm-0.28 vllm-0.32" {
		t.Errorf("replies of %s have the topic frame, want those since 0.26", got)
	}
}

// BenchmarkAppendBatch encodes one store of 64 blocks of 16 tokens, and 64 stores of one block: a long
// prefill and a full decode step.
func BenchmarkAppendBatch(b *testing.B) {
	h, err := blockhash.New("sha256", blockhash.DefaultSeed)
	if err != nil {
		b.Fatal(err)
	}
	prompt := make([]uint32, 64*16)
	for i := range prompt {
		prompt[i] = uint32(i * 7919 % 151936)
	}
	hashes := []blockhash.Digest{h.NoneHash()}
	for i := range 64 {
		hashes = append(hashes, h.Next(hashes[i], prompt[16*i:16*i+16], blockhash.Extra{}))
	}
	store := func(from, to int) engine.Event {
		return engine.Event{
			Kind: engine.Stored, Hashes: hashes[from+1 : to+1], Parent: &hashes[from], Tokens: prompt[16*from : 16*to],
			BlockSize: 16, ExtraKeys: make([]engine.ExtraKey, to-from), SpecKind: "full_attention", Medium: "GPU",
		}
	}
	var decode []engine.Event
	for i := range 64 {
		decode = append(decode, store(i, i+1))
	}
	for name, batch := range map[string][]engine.Event{"prefill64": {store(0, 64)}, "decode64": decode} {
		b.Run(name, func(b *testing.B) {
			enc, err := New("vllm-0.25", Options{IntHashes: true})
			if err != nil {
				b.Fatal(err)
			}
			var buf []byte
			b.ReportAllocs()
			for b.Loop() {
				buf = enc.AppendBatch(buf[:0], 1757500000.25, batch)
			}
			b.SetBytes(int64(len(buf)))
		})
	}
}
