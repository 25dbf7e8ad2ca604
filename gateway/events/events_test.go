package events

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/big"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"fleetdrill/internal/shared"
)

// golden is a row of event_payloads.jsonl. Batch is what the payload says, in JSON's words.
type golden struct {
	Profile string `json:"profile"`
	Note    string `json:"note"`
	Batch   any    `json:"batch"`
	Payload string `json:"payload_hex"`
}

func goldens(t testing.TB) (rows []golden, payloads [][]byte) {
	for line := range shared.Lines(t, "vectors/event_payloads.jsonl") {
		var g golden
		d := json.NewDecoder(bytes.NewReader(line))
		d.UseNumber() // hashes do not fit a float
		if err := d.Decode(&g); err != nil {
			t.Fatal(err)
		}
		payload, err := hex.DecodeString(g.Payload)
		if err != nil {
			t.Fatal(err)
		}
		rows, payloads = append(rows, g), append(payloads, payload)
	}
	return rows, payloads
}

var modelOnly = cmp.Options{cmpopts.IgnoreUnexported(Batch{}), cmpopts.EquateEmpty()}

func TestGoldenPayloads(t *testing.T) {
	rows, payloads := goldens(t)
	var b Batch // one for all rows, so that nothing of a row may show in the next
	for i, g := range rows {
		if err := b.Decode(payloads[i]); err != nil {
			t.Errorf("row %d (%s, %s): %v", i, g.Profile, g.Note, err)
			continue
		}
		if diff := cmp.Diff(wantBatch(g.Batch), b, modelOnly); diff != "" {
			t.Errorf("row %d (%s, %s) (-want +got):\n%s", i, g.Profile, g.Note, diff)
		}
	}
	if len(rows) < 80 {
		t.Fatalf("only %d golden rows", len(rows))
	}
}

// The test's own list of array slots, from the published field order, so that a slip in the decoder's
// does not hide itself.
var slotNames = map[string][]string{
	"BlockStored": {"type", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium",
		"lora_name", "extra_keys", "group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window", "locality", "ownership"},
	"BlockRemoved":     {"type", "block_hashes", "medium", "group_idx", "locality", "ownership"},
	"AllBlocksCleared": {"type"},
}

func wantBatch(v any) Batch {
	b := Batch{Rank: -1}
	var list []any
	switch v := v.(type) {
	case []any:
		b.TS, list = asFloat(v[0]), v[1].([]any)
		if len(v) > 2 {
			b.Rank = int(asInt(v[2]))
		}
	case map[string]any:
		b.TS, list, b.Rank = asFloat(v["ts"]), v["events"].([]any), int(asInt(v["data_parallel_rank"]))
	}
	for _, e := range list {
		b.Events = append(b.Events, wantEvent(e))
	}
	return b
}

func wantEvent(v any) Event {
	m, isMap := v.(map[string]any)
	if !isMap {
		m = map[string]any{}
		slots := v.([]any)
		for i, name := range slotNames[slots[0].(string)][:len(slots)] {
			m[name] = slots[i]
		}
		if meta, ok := m["lora_name"].(map[string]any); ok {
			m["lora_name"], m["cache_salt"] = nil, meta["cache_salt"]
		}
	}
	e := Event{
		Kind:     map[string]Kind{"BlockStored": Stored, "BlockRemoved": Removed, "AllBlocksCleared": Cleared}[m["type"].(string)],
		LoRAName: asText(m["lora_name"]), Salt: asText(m["cache_salt"]), SpecKind: asText(m["kv_cache_spec_kind"]),
		Medium: asText(m["medium"]), Locality: asText(m["locality"]), Owner: asText(m["ownership"]),
		LoRAID: asInt(m["lora_id"]), Window: asInt(m["kv_cache_spec_sliding_window"]),
		BlockSize: int(asInt(m["block_size"])), HasParent: m["parent_block_hash"] != nil, HasGroup: m["group_idx"] != nil,
		Group: asInt(m["group_idx"]),
	}
	if e.HasParent {
		e.Parent = asHash(m["parent_block_hash"])
	}
	for _, h := range asList(m["block_hashes"]) {
		e.Hashes = append(e.Hashes, asHash(h))
	}
	for _, tok := range asList(m["token_ids"]) {
		e.Tokens = append(e.Tokens, uint32(asInt(tok)))
	}
	e.ExtraKeys = wantKeys(asList(m["extra_keys"]))
	return e
}

func wantKeys(list []any) [][]Key {
	out := make([][]Key, len(list))
	any := false
	for i, entry := range list {
		for _, k := range asList(entry) {
			any = true
			if pair, ok := k.([]interface{}); ok {
				out[i] = append(out[i], Key{Text: asText(pair[0]), HasOffset: true, Offset: asInt(pair[1])})
				continue
			}
			out[i] = append(out[i], Key{Text: asText(k)})
		}
	}
	if !any {
		return nil
	}
	return out
}

func asFloat(v any) float64 { f, _ := v.(json.Number).Float64(); return f }
func asText(v any) string   { s, _ := v.(string); return s }
func asList(v any) []any    { l, _ := v.([]any); return l }

func asInt(v any) int64 {
	n, _ := v.(json.Number)
	i, _ := strconv.ParseInt(string(n), 10, 64)
	return i
}

func asHash(v any) uint64 {
	if m, ok := v.(map[string]any); ok {
		digest := m["bin"].(string)
		h, err := strconv.ParseUint(digest[len(digest)-16:], 16, 64)
		if err != nil {
			panic(err)
		}
		return h
	}
	i, _ := new(big.Int).SetString(string(v.(json.Number)), 10)
	return new(big.Int).And(i, new(big.Int).SetUint64(1<<64-1)).Uint64()
}

// A payload cut anywhere is not a batch, and says so without a trace of what came before the cut.
func TestTruncatedAtEveryByte(t *testing.T) {
	rows, payloads := goldens(t)
	var b Batch
	for i, payload := range payloads {
		for cut := range payload {
			if err := b.Decode(payload[:cut]); err == nil || len(b.Events) > 0 {
				t.Fatalf("row %d (%s) cut to %d of %d bytes: %d events, error %v",
					i, rows[i].Profile, cut, len(payload), len(b.Events), err)
			}
		}
	}
}

// batchOf wraps raw event bytes in [1.0, [events...], 0].
func batchOf(events ...string) []byte {
	return unhex("93 cb3ff0000000000000 9" + fmt.Sprintf("%x", len(events)) + strings.Join(events, "") + "00")
}

func unhex(s string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		panic(err)
	}
	return b
}

// text is a msgpack string of under 32 bytes, as hex.
func text(s string) string { return fmt.Sprintf("%02x%x", 0xa0+len(s), s) }

const clearHex = "91b0416c6c426c6f636b73436c6561726564"

func TestHostilePayloads(t *testing.T) {
	stored := text("type") + text("BlockStored")
	cases := []struct {
		name    string
		payload []byte
		wantErr bool
		bad     int // malformed events, next to one clear that must survive
	}{
		{name: "empty", payload: nil, wantErr: true},
		{name: "not a batch", payload: unhex("c0"), wantErr: true},
		{name: "one element", payload: unhex("91 cb3ff0000000000000"), wantErr: true},
		{name: "batch of 2^32-1 elements", payload: unhex("dd ffffffff"), wantErr: true},
		{name: "2^32-1 events", payload: unhex("92 00 dd ffffffff"), wantErr: true},
		{name: "map of 2^32-1 pairs", payload: unhex("df ffffffff"), wantErr: true},
		{name: "text of 4 GB", payload: unhex("81 db ffffffff 61"), wantErr: true},
		{name: "more events than any step has", payload: append(unhex("92 00 dd 00020001"), make([]byte, 1<<17+1)...), wantErr: true},
		{name: "larger than any batch", payload: make([]byte, maxPayload+1), wantErr: true},
		{name: "map without events", payload: unhex("81" + text("ts") + "00"), wantErr: true},
		{name: "bytes behind the batch", payload: append(batchOf(clearHex), 0), wantErr: true},
		{name: "a byte that msgpack never uses", payload: unhex("92 00 91 c1"), wantErr: true},
		{name: "nested 100 deep", payload: append(append(unhex("92 00 91"), bytes.Repeat([]byte{0x91}, 100)...), 0xc0), wantErr: true},
		{name: "event of nil", payload: batchOf("c0", clearHex), bad: 1},
		{name: "event of an empty array", payload: batchOf("90", clearHex), bad: 1},
		{name: "map event without type", payload: batchOf("81"+text("medium")+"c0", clearHex), bad: 1},
		{name: "type is a number", payload: batchOf("81"+text("type")+"07", clearHex), bad: 1},
		{name: "hash is a bool", payload: batchOf("82"+text("type")+text("BlockRemoved")+text("block_hashes")+"91c3", clearHex), bad: 1},
		{name: "hash is a float", payload: batchOf("82"+text("type")+text("BlockRemoved")+text("block_hashes")+"91ca00000000", clearHex), bad: 1},
		{name: "hash of no bytes", payload: batchOf("92"+text("BlockRemoved")+"91c400", clearHex), bad: 1},
		{name: "hashes are nil", payload: batchOf("92"+text("BlockRemoved")+"c0", clearHex), bad: 1},
		{name: "removal without hashes", payload: batchOf("91"+text("BlockRemoved"), clearHex), bad: 1},
		{name: "store without parent", payload: batchOf("84"+stored+text("block_hashes")+"9101"+text("token_ids")+"9101"+text("block_size")+"01", clearHex), bad: 1},
		{name: "token below zero", payload: batchOf("95"+text("BlockStored")+"9101c091ff01", clearHex), bad: 1},
		{name: "token of 33 bits", payload: batchOf("95"+text("BlockStored")+"9101c091cf000000010000000001", clearHex), bad: 1},
		{name: "ids and pairs mixed", payload: batchOf("95"+text("BlockStored")+"9101c092 9201020301", clearHex), bad: 1},
		{name: "pair of three", payload: batchOf("95"+text("BlockStored")+"9101c091 9301020301", clearHex), bad: 1},
		{name: "medium is a map", payload: batchOf("93"+text("BlockRemoved")+"910180", clearHex), bad: 1},
		{name: "field of an unknown type behind", payload: batchOf("82"+text("type")+text("AllBlocksCleared")+text("x")+"d40102", clearHex)},
	}
	var b Batch
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var err error
			if spent := allocated(func() { err = b.Decode(c.payload) }); spent > 1<<20 {
				t.Errorf("took %d bytes of memory for %d of payload", spent, len(c.payload))
			}
			if (err != nil) != c.wantErr {
				t.Fatalf("error %v, want one: %v", err, c.wantErr)
			}
			if err != nil {
				if len(b.Events) > 0 || b.Malformed > 0 {
					t.Fatalf("an unreadable payload left %+v", b)
				}
				return
			}
			if b.Malformed != c.bad || b.Events[len(b.Events)-1].Kind != Cleared {
				t.Fatalf("malformed %d, want %d; events %+v", b.Malformed, c.bad, b.Events)
			}
		})
	}
}

func TestUnknownTypeIsCountedApart(t *testing.T) {
	var b Batch
	payload := batchOf("82"+text("type")+text("BlockInactive")+text("block_hashes")+"9101", "91"+text("BlockInactive"), clearHex)
	if err := b.Decode(payload); err != nil {
		t.Fatal(err)
	}
	if b.UnknownType != 2 || b.Malformed != 0 || len(b.Events) != 1 {
		t.Fatalf("unknown %d, malformed %d, events %d; want 2, 0, 1", b.UnknownType, b.Malformed, len(b.Events))
	}
}

func TestTypeMayStandBehindTheFields(t *testing.T) {
	var b Batch
	if err := b.Decode(batchOf("82" + text("block_hashes") + "9107" + text("type") + text("BlockRemoved"))); err != nil {
		t.Fatal(err)
	}
	want := []Event{{Kind: Removed, Hashes: []uint64{7}}}
	if diff := cmp.Diff(want, b.Events, modelOnly); diff != "" {
		t.Fatal(diff)
	}
}

func TestBigrams(t *testing.T) {
	var b Batch
	if err := b.Decode(batchOf("95" + text("BlockStored") + "9101c092 920102 920203 02")); err != nil {
		t.Fatal(err)
	}
	want := []Event{{Kind: Stored, Hashes: []uint64{1}, Tokens: []uint32{1, 2}, Bigram: true, BlockSize: 2}}
	if diff := cmp.Diff(want, b.Events, modelOnly); diff != "" {
		t.Fatal(diff)
	}
}

func TestHasClear(t *testing.T) {
	for _, c := range []struct {
		name    string
		payload []byte
		want    bool
	}{
		{"clear", batchOf("92"+text("BlockRemoved")+"9101", clearHex), true},
		{"removal", batchOf("92" + text("BlockRemoved") + "9101"), false},
		{"clear of the residency agent", batchOf("92" + text("AllBlocksCleared") + text("KVCR")), false},
		{"unreadable", []byte{0xc1}, false},
	} {
		if got := HasClear(c.payload); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// allocated is the memory f takes from the heap, in bytes.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
