package enginegrpc

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	pb "fleetdrill/internal/protos/smgcommon"
	"fleetdrill/mockworker/blockhash"
	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/wire"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func newConverter() *converter { return &converter{groups: &groups{}} }

func encoder(t testing.TB, name string) *wire.Encoder {
	t.Helper()
	enc, err := wire.New(name, wire.Options{IntHashes: true})
	if err != nil {
		t.Fatal(err)
	}
	return enc
}

func ptr[T any](v T) *T { return &v }

// scene is a batch of every kind of event that an engine sends.
func scene() []engine.Event {
	h := func(n uint64) blockhash.Digest { return blockhash.FromInt(n) }
	parent := h(11)
	return []engine.Event{
		{Kind: engine.Removed, Hashes: []blockhash.Digest{h(7)}, Medium: engine.MediumGPU},
		{Kind: engine.Stored, Hashes: []blockhash.Digest{h(1 << 63), h(12)}, Tokens: []uint32{1, 2, 3, 70_000}, BlockSize: 2,
			LoRAID: ptr(4), LoRAName: "adapter", CacheSalt: "pepper", Medium: engine.MediumGPU, SpecKind: engine.KindFullAttention,
			ExtraKeys: []engine.ExtraKey{{{Text: "adapter"}, {Text: "img", IsItem: true, Offset: -3}, {Text: "pepper"}}, {{Text: "adapter"}}}, SessionID: "s1"},
		{Kind: engine.Stored, Hashes: []blockhash.Digest{h(13)}, Parent: &parent, Tokens: []uint32{5, 6}, BlockSize: 2, Medium: "CPU", Group: engine.NoGroup, Locality: "LOCAL", Ownership: "tier-2"},
		{Kind: engine.Stored, Hashes: []blockhash.Digest{h(14)}, Tokens: []uint32{5, 6}, BlockSize: 2, Medium: engine.MediumGPU, Group: 1, SpecKind: "sliding_window", SpecWindow: 128},
		{Kind: engine.Cleared},
	}
}

// twoSpaces are what prototext puts behind a colon in some builds, on purpose.
var twoSpaces = regexp.MustCompile(`: +`)

func dump(m proto.Message) string {
	text := prototext.MarshalOptions{Multiline: true, Indent: "  "}.Format(m)
	return twoSpaces.ReplaceAllString(strings.ReplaceAll(text, "  {", " {"), ": ")
}

// The messages of one batch on the wires that differ. What a wire does not tell is in no message.
func TestGoldenMessages(t *testing.T) {
	var got strings.Builder
	for _, name := range []string{"vllm-0.9", "vllm-0.23", "vllm-0.32", "sglang-array", "sglang-map"} {
		payload := encoder(t, name).AppendBatch(nil, 1757500000.25, scene())
		m, err := newConverter().message(41, payload)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&got, "# %s\n%s\n", name, dump(m))
	}
	const file = "testdata/messages.txt"
	if *update {
		if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// Whatever a device event says is in its message, on every wire.
func TestMessagesTellTheEvents(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		name := rapid.SampledFrom(wire.Names()).Draw(rt, "wire")
		events := rapid.SliceOfN(rapid.Custom(drawEvent), 1, 8).Draw(rt, "events")
		payload := encoder(t, name).AppendBatch(nil, 5, events)
		m, err := newConverter().message(rapid.Int64Range(0, 1<<40).Draw(rt, "seq"), payload)
		if err != nil || len(m.Events) != len(events) {
			rt.Fatalf("%d messages of %d events, %v", len(m.Events), len(events), err)
		}
		for i := range events {
			if err := same(&events[i], m.Events[i]); err != nil {
				rt.Fatalf("event %d: %v in %v", i, err, m.Events[i])
			}
		}
		if back, err := proto.Marshal(m); err != nil || proto.Unmarshal(back, &pb.KvEventBatch{}) != nil {
			rt.Fatalf("the message cannot be sent: %v", err)
		}
	})
}

func drawEvent(t *rapid.T) engine.Event {
	n := rapid.IntRange(1, 5).Draw(t, "blocks")
	ev := engine.Event{Kind: engine.EventKind(rapid.IntRange(1, 3).Draw(t, "kind")), Medium: engine.MediumGPU, SpecKind: engine.KindFullAttention}
	hash := rapid.Custom(func(t *rapid.T) blockhash.Digest { return blockhash.FromInt(rapid.Uint64().Draw(t, "hash")) })
	switch ev.Kind {
	case engine.Stored:
		ev.BlockSize = rapid.IntRange(1, 20).Draw(t, "block size")
		ev.Tokens = rapid.SliceOfN(rapid.Uint32(), n*ev.BlockSize, n*ev.BlockSize).Draw(t, "tokens")
		if rapid.Bool().Draw(t, "has a parent") {
			ev.Parent = ptr(hash.Draw(t, "parent"))
		}
	case engine.Cleared:
		return ev
	}
	ev.Hashes = rapid.SliceOfN(hash, n, n).Draw(t, "hashes")
	return ev
}

func same(ev *engine.Event, m *pb.KvCacheEvent) error {
	var got, want []int64
	for i := range ev.Hashes {
		want = append(want, int64(ev.Hashes[i].EventInt()))
	}
	switch ev.Kind {
	case engine.Cleared:
		if m.GetCleared() == nil {
			return fmt.Errorf("no clear")
		}
	case engine.Removed:
		got = m.GetRemoved().GetBlockHashes()
	case engine.Stored:
		s := m.GetStored()
		for i, b := range s.GetBlocks() {
			got = append(got, b.BlockHash)
			if !cmp.Equal(b.TokenIds, ev.Tokens[i*ev.BlockSize:(i+1)*ev.BlockSize]) || int(b.BlockSize) != ev.BlockSize {
				return fmt.Errorf("block %d has other tokens", i)
			}
		}
		if (s.ParentBlockHash != nil) != (ev.Parent != nil) || ev.Parent != nil && s.GetParentBlockHash() != int64(ev.Parent.EventInt()) {
			return fmt.Errorf("another parent")
		}
	}
	if !cmp.Equal(got, want) {
		return fmt.Errorf("hashes %v, want %v", got, want)
	}
	return nil
}

// A window group's events are forwarded only while no main group is known; the batch that brings the main
// group counts already.
func TestWindowGroupsAreForNobody(t *testing.T) {
	store := func(group int, kind string, hash uint64) engine.Event {
		return engine.Event{Kind: engine.Stored, Hashes: []blockhash.Digest{blockhash.FromInt(hash)}, Tokens: []uint32{1}, BlockSize: 1, Medium: engine.MediumGPU, Group: group, SpecKind: kind}
	}
	removal := func(group int) engine.Event {
		return engine.Event{Kind: engine.Removed, Hashes: []blockhash.Digest{blockhash.FromInt(9)}, Medium: engine.MediumGPU, Group: group}
	}
	c, enc := newConverter(), encoder(t, "vllm-0.32")
	for i, x := range []struct {
		events []engine.Event
		want   int
	}{
		{[]engine.Event{store(0, "sliding_window", 1), removal(0)}, 2},
		{[]engine.Event{store(0, "sliding_window", 2), store(1, "full_attention", 2)}, 1},
		{[]engine.Event{removal(0), removal(1), removal(2)}, 2},
	} {
		m, err := c.message(int64(i), enc.AppendBatch(nil, 1, x.events))
		if err != nil || len(m.Events) != x.want {
			t.Errorf("batch %d: %d of %d events are forwarded, want %d; %v", i, len(m.Events), len(x.events), x.want, err)
		}
	}
	if c.id != 7 {
		t.Errorf("the last event has id %d of 7", c.id)
	}
}

// What no message can tell costs itself, what is no batch costs its events; neither costs the number.
func TestWhatCannotBeTold(t *testing.T) {
	good := "\x83\xa4type\xacBlockRemoved\xacblock_hashes\x91\x05\xa6medium\xa3GPU"
	store := func(fields string) string {
		return "\x85\xa4type\xabBlockStored\xacblock_hashes\x91\x05\xa9token_ids\x91\x01\xaablock_size\x01" + fields
	}
	for name, x := range map[string]struct {
		payload string
		events  int
		fails   bool
	}{
		"whole":                 {payload: "\x93\x00\x91" + good + "\x00", events: 1},
		"unknown type":          {payload: "\x92\x00\x92\x81\xa4type\xadBlockInactive" + good, events: 1},
		"hash of another type":  {payload: "\x92\x00\x92\x82\xa4type\xacBlockRemoved\xacblock_hashes\x91\xc3" + good, events: 1},
		"remote":                {payload: "\x92\x00\x92" + store("\xa8locality\xa6REMOTE") + good, events: 1},
		"unknown medium":        {payload: "\x92\x00\x92" + store("\xa6medium\xa2FS") + good, events: 1},
		"text that is no UTF-8": {payload: "\x92\x00\x92" + store("\xa9lora_name\xa1\xff") + good, events: 1},
		"masked store":          {payload: "\x92\x00\x92\x84\xa4type\xabBlockStored\xacblock_hashes\x91\x05\xa9token_ids\x92\x01\x02\xaablock_size\x01" + good, events: 1},
		"placeholder":           {payload: "\x92\x00\x92\x84\xa4type\xabBlockStored\xacblock_hashes\x91\x05\xa9token_ids\x90\xaablock_size\x00" + good, events: 1},
		"cut off":               {payload: "\x93\x00\x91" + good[:len(good)-2], fails: true},
		"length bomb":           {payload: "\x92\x00\xdd\xff\xff\xff\xff", fails: true},
		"nested":                {payload: "\x92\x00\x91" + strings.Repeat("\x91", 1000) + "\x00", fails: true},
		"no batch":              {payload: "\x01", fails: true},
		"short batch":           {payload: "\x91\x00", fails: true},
		"empty":                 {fails: true},
	} {
		m, err := newConverter().message(8, []byte(x.payload))
		if (err != nil) != x.fails || len(m.Events) != x.events || m.SequenceNumber != 9 {
			t.Errorf("%s: %d events under %d, %v", name, len(m.Events), m.SequenceNumber, err)
		}
	}
}

// FuzzMessage: whatever a payload is, there is a message under its number, and it can be sent.
func FuzzMessage(f *testing.F) {
	for _, name := range wire.Names() {
		enc, err := wire.New(name, wire.Options{IntHashes: true})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(enc.AppendBatch(nil, 1, scene()))
	}
	f.Add([]byte{0x92, 0, 0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, payload []byte) {
		m, _ := newConverter().message(4, payload)
		if m.GetSequenceNumber() != 5 {
			t.Fatalf("number %d", m.GetSequenceNumber())
		}
		if _, err := proto.Marshal(m); err != nil {
			t.Fatal(err)
		}
	})
}

// BenchmarkMessage converts a step's batch of 64 blocks of 16 tokens.
func BenchmarkMessage(b *testing.B) {
	ev := engine.Event{Kind: engine.Stored, BlockSize: 16, Medium: engine.MediumGPU, SpecKind: engine.KindFullAttention, ExtraKeys: make([]engine.ExtraKey, 64)}
	for i := range 64 {
		ev.Hashes = append(ev.Hashes, blockhash.FromInt(uint64(i)<<50))
		for j := range 16 {
			ev.Tokens = append(ev.Tokens, uint32(i*16+j)*100)
		}
	}
	enc, err := wire.New("vllm-0.25", wire.Options{IntHashes: true})
	if err != nil {
		b.Fatal(err)
	}
	payload, c := enc.AppendBatch(nil, 1, []engine.Event{ev}), newConverter()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.message(1, payload); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(64*float64(b.N)/b.Elapsed().Seconds(), "blocks/s")
}
