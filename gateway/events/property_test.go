package events

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vmihailenco/msgpack/v5"
	"pgregory.net/rapid"
)

// encoder writes events with the public msgpack library, in either layout, as an engine would.
type encoder struct {
	*msgpack.Encoder
	asMap, asBytes bool
}

func encode(b Batch, asMap, mapBatch, asBytes bool) []byte {
	var buf bytes.Buffer
	e := encoder{msgpack.NewEncoder(&buf), asMap, asBytes}
	e.UseCompactInts(true)
	switch {
	case mapBatch:
		e.EncodeMapLen(3)
		e.EncodeString("data_parallel_rank")
		e.EncodeInt(int64(b.Rank))
		e.EncodeString("ts")
		e.EncodeFloat64(b.TS)
		e.EncodeString("events")
		e.events(b.Events)
	case b.Rank < 0:
		e.EncodeArrayLen(2)
		e.EncodeFloat64(b.TS)
		e.events(b.Events)
	default:
		e.EncodeArrayLen(4) // one field of a later version behind the known ones
		e.EncodeFloat64(b.TS)
		e.events(b.Events)
		e.EncodeInt(int64(b.Rank))
		e.EncodeBytes([]byte("publisher id"))
	}
	return buf.Bytes()
}

func (e encoder) events(list []Event) {
	e.EncodeArrayLen(len(list))
	for i := range list {
		e.event(&list[i])
	}
}

// pair is one field: its key in a map event and how to write its value.
type pair struct {
	key   string
	write func()
}

func (e encoder) event(ev *Event) {
	var fields []pair
	add := func(key string, write func()) { fields = append(fields, pair{key, write}) }
	if ev.Kind != Cleared {
		add("block_hashes", func() { e.hashes(ev.Hashes) })
	}
	if ev.Kind == Stored {
		add("parent_block_hash", func() { e.optional(ev.HasParent, func() { e.hash(ev.Parent) }) })
		add("token_ids", func() { e.tokens(ev) })
		add("block_size", func() { e.EncodeInt(int64(ev.BlockSize)) })
		add("lora_id", func() { e.optional(ev.LoRAID != 0, func() { e.EncodeInt(ev.LoRAID) }) })
	}
	if ev.Kind != Cleared {
		add("medium", func() { e.text(ev.Medium) })
	}
	if ev.Kind == Stored {
		add("lora_name", func() { e.text(ev.LoRAName) })
		add("extra_keys", func() { e.extraKeys(ev.ExtraKeys) })
	}
	if ev.Kind != Cleared {
		add("group_idx", func() { e.optional(ev.HasGroup, func() { e.EncodeInt(ev.Group) }) })
	}
	if ev.Kind == Stored {
		add("kv_cache_spec_kind", func() { e.text(ev.SpecKind) })
		add("kv_cache_spec_sliding_window", func() { e.optional(ev.Window != 0, func() { e.EncodeInt(ev.Window) }) })
	}
	if ev.Kind != Cleared {
		add("locality", func() { e.text(ev.Locality) })
	}
	add("ownership", func() { e.text(ev.Owner) })
	if e.asMap {
		e.EncodeMapLen(len(fields) + 2)
		e.EncodeString("type")
		e.EncodeString(ev.Kind.String())
		e.EncodeString("a_field_of_the_future")
		e.EncodeMulti([]any{1, "two", map[string]any{"three": nil}})
	} else {
		e.EncodeArrayLen(len(fields) + 1)
		e.EncodeString(ev.Kind.String())
	}
	for _, f := range fields {
		if e.asMap {
			e.EncodeString(f.key)
		}
		f.write()
	}
}

func (e encoder) optional(present bool, write func()) {
	if present {
		write()
		return
	}
	e.EncodeNil()
}

func (e encoder) text(s string) { e.optional(s != "", func() { e.EncodeString(s) }) }

func (e encoder) hashes(list []uint64) {
	e.EncodeArrayLen(len(list))
	for _, h := range list {
		e.hash(h)
	}
}

// hash writes h as vLLM does (unsigned or a digest that ends in it), or as SGLang does when it is odd.
func (e encoder) hash(h uint64) {
	switch {
	case e.asBytes:
		digest := []byte("a digest's first bytes..")
		for shift := 56; shift >= 0; shift -= 8 {
			digest = append(digest, byte(h>>shift))
		}
		e.EncodeBytes(digest)
	case h%2 == 1:
		e.EncodeInt(int64(h))
	default:
		e.EncodeUint(h)
	}
}

func (e encoder) tokens(ev *Event) {
	e.EncodeArrayLen(len(ev.Tokens))
	for _, t := range ev.Tokens {
		if ev.Bigram {
			e.EncodeArrayLen(2)
			e.EncodeUint(uint64(t))
		}
		e.EncodeUint(uint64(t))
	}
}

func (e encoder) extraKeys(list [][]Key) {
	if list == nil {
		e.EncodeNil()
		return
	}
	e.EncodeArrayLen(len(list))
	for _, keys := range list {
		if keys == nil {
			e.EncodeNil()
			continue
		}
		e.EncodeArrayLen(len(keys))
		for _, k := range keys {
			switch {
			case k.Bytes != nil:
				e.EncodeBytes(k.Bytes)
			case k.HasOffset:
				e.EncodeArrayLen(2)
				e.EncodeString(k.Text)
				e.EncodeInt(k.Offset)
			default:
				e.EncodeString(k.Text)
			}
		}
	}
}

func drawEvent(t *rapid.T) Event {
	text := rapid.SampledFrom([]string{"", "GPU", "LOCAL", "full_attention", "x", string(make([]byte, 40))})
	e := Event{Kind: rapid.SampledFrom([]Kind{Stored, Removed, Cleared}).Draw(t, "kind"), Owner: text.Draw(t, "owner")}
	if e.Kind == Cleared {
		return e
	}
	e.Hashes = rapid.SliceOfN(rapid.Uint64(), 0, 20).Draw(t, "hashes")
	e.Medium, e.Locality = text.Draw(t, "medium"), text.Draw(t, "locality")
	if e.HasGroup = rapid.Bool().Draw(t, "grouped"); e.HasGroup {
		e.Group = rapid.Int64Range(-1, 300).Draw(t, "group")
	}
	if e.Kind == Removed {
		return e
	}
	if e.HasParent = rapid.Bool().Draw(t, "child"); e.HasParent {
		e.Parent = rapid.Uint64().Draw(t, "parent")
	}
	e.Tokens = rapid.SliceOfN(rapid.Uint32(), 0, 70).Draw(t, "tokens")
	e.Bigram = len(e.Tokens) > 0 && rapid.Bool().Draw(t, "bigram")
	e.BlockSize = rapid.IntRange(0, 70_000).Draw(t, "block size")
	e.LoRAID, e.LoRAName = rapid.Int64Range(0, 70_000).Draw(t, "lora id"), text.Draw(t, "lora")
	e.SpecKind, e.Window = text.Draw(t, "spec"), rapid.Int64Range(0, 1<<33).Draw(t, "window")
	if rapid.Bool().Draw(t, "keyed") {
		e.ExtraKeys = [][]Key{nil, {{Text: "lora"}, {Text: "img", HasOffset: true, Offset: rapid.Int64Range(-99, 99).Draw(t, "offset")}}, {{Bytes: []byte{1, 2}}}}
	}
	return e
}

// What the public library writes, the hand-written reader reads, whatever the layout.
func TestReadsWhatMsgpackWrites(t *testing.T) {
	var got Batch
	rapid.Check(t, func(t *rapid.T) {
		want := Batch{TS: rapid.Float64Range(0, 1e10).Draw(t, "ts"), Rank: rapid.IntRange(-1, 300).Draw(t, "rank")}
		for range rapid.IntRange(0, 5).Draw(t, "events") {
			want.Events = append(want.Events, drawEvent(t))
		}
		mapBatch := want.Rank >= 0 && rapid.Bool().Draw(t, "map batch")
		payload := encode(want, rapid.Bool().Draw(t, "map events"), mapBatch, rapid.Bool().Draw(t, "byte hashes"))
		if err := got.Decode(payload); err != nil {
			t.Fatalf("%v in %x", err, payload)
		}
		if diff := cmp.Diff(want, got, modelOnly); diff != "" {
			t.Fatalf("-sent +read:\n%s", diff)
		}
	})
}

// drawValue is any msgpack value: what stands in a field that we do not know yet.
func drawValue(t *rapid.T, e *msgpack.Encoder, depth int) {
	kinds := 9
	if depth == 0 {
		kinds = 7
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "value") {
	case 0:
		e.EncodeNil()
	case 1:
		e.EncodeBool(rapid.Bool().Draw(t, "bool"))
	case 2:
		e.EncodeInt(rapid.Int64().Draw(t, "int"))
	case 3:
		e.EncodeFloat32(rapid.Float32().Draw(t, "float"))
	case 4:
		e.EncodeString(string(make([]byte, rapid.SampledFrom([]int{0, 31, 32, 255, 256, 70_000}).Draw(t, "text"))))
	case 5:
		e.EncodeBytes(make([]byte, rapid.SampledFrom([]int{0, 255, 256, 70_000}).Draw(t, "bytes")))
	case 6:
		n := rapid.SampledFrom([]int{1, 2, 3, 4, 8, 16, 17, 300}).Draw(t, "extension")
		e.EncodeExtHeader(5, n)
		e.Writer().Write(make([]byte, n))
	case 7:
		n := rapid.SampledFrom([]int{0, 1, 2, 16}).Draw(t, "array")
		e.EncodeArrayLen(n)
		for range n {
			drawValue(t, e, depth-1)
		}
	case 8:
		n := rapid.SampledFrom([]int{0, 1, 16}).Draw(t, "map")
		e.EncodeMapLen(n)
		for range 2 * n {
			drawValue(t, e, depth-1)
		}
	}
}

func TestSkipsAnyValueExactly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var buf bytes.Buffer
		drawValue(t, msgpack.NewEncoder(&buf), 2)
		r := reader{buf: buf.Bytes()}
		if err := r.skip(maxDepth); err != nil || r.left() != 0 {
			t.Fatalf("skipping %d bytes: error %v, %d left", buf.Len(), err, r.left())
		}
		cut := rapid.IntRange(0, buf.Len()-1).Draw(t, "cut")
		r = reader{buf: buf.Bytes()[:cut]}
		if err := r.skip(maxDepth); err == nil {
			t.Fatalf("%d of %d bytes passed as a value", cut, buf.Len())
		}
	})
}

func FuzzDecode(f *testing.F) {
	_, payloads := goldens(f)
	for _, p := range payloads {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		var b Batch
		if err := b.Decode(payload); err != nil && (len(b.Events) > 0 || b.Malformed > 0) {
			t.Fatalf("an unreadable payload left %d events", len(b.Events))
		}
		for _, op := range NewNormalizer(0).Normalize(&b) {
			checkOp(t, op)
		}
	})
}

// checkOp checks what an index relies on.
func checkOp(t testing.TB, op Op) {
	t.Helper()
	switch op.Kind {
	case Stored:
		if len(op.Hashes) == 0 || len(op.Hashes) != len(op.Contents) {
			t.Fatalf("store of %d hashes with %d contents", len(op.Hashes), len(op.Contents))
		}
	case Removed, Attached:
		if len(op.Hashes) == 0 {
			t.Fatal("an operation on nothing")
		}
	}
}
