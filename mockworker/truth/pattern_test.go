package truth

import (
	"bytes"
	"cmp"
	"math"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/vmihailenco/msgpack/v5"
	"pgregory.net/rapid"

	"fleetdrill/internal/tokens"
	"fleetdrill/mockworker/blockhash"
	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/wire"
)

// plainly decodes a batch event by event, without a look at the one before.
func plainly(payload []byte) ([]event, error) {
	d := decoder{b: payload}
	elements, err := d.length(familyArray)
	if err != nil || elements < 2 {
		return nil, cmp.Or(err, errTruncated)
	}
	if err := d.skip(0); err != nil {
		return nil, err
	}
	count, err := d.length(familyArray)
	if err != nil {
		return nil, err
	}
	for range count {
		if err := d.event(); err != nil {
			return nil, err
		}
	}
	for range elements - 2 {
		if err := d.skip(0); err != nil {
			return nil, err
		}
	}
	if len(d.b) > 0 {
		return nil, errTruncated
	}
	return d.events, nil
}

// single takes the runs of removals apart.
func single(events []event) (out []event) {
	for _, e := range events {
		if e.times == 1 {
			out = append(out, e)
			continue
		}
		for i := range e.times {
			one := e
			one.times, one.hashes = 1, e.hashes[i:i+1]
			out = append(out, one)
		}
	}
	return out
}

// readBothWays decodes a payload and fails the test if event by event it is another one.
func readBothWays(t interface{ Fatalf(string, ...any) }, payload []byte) ([]event, error) {
	var d decoder
	got, err := d.batch(payload)
	want, plainErr := plainly(payload)
	if (err == nil) != (plainErr == nil) {
		t.Fatalf("%x: in runs %v, event by event %v", payload, err, plainErr)
	}
	if err != nil {
		return nil, err
	}
	if diff := gocmp.Diff(want, single(got), gocmp.AllowUnexported(event{}), cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("%x (-event by event +in runs):\n%s", payload, diff)
	}
	return got, nil
}

// Whatever our encoders write is the same read in runs and event by event, and the removals of a group in a
// row are one run: signs, small integers and other tiers break it, as they must.
func TestRunsOfRemovals(t *testing.T) {
	for _, profile := range wire.Names() {
		for _, ints := range []bool{true, false} {
			enc, err := wire.New(profile, wire.Options{IntHashes: ints})
			if err != nil {
				continue // a profile without byte hashes
			}
			rapid.Check(t, func(t *rapid.T) {
				var events []engine.Event
				for range rapid.IntRange(0, 12).Draw(t, "events") {
					events = append(events, drawSent(t))
				}
				payload := enc.AppendBatch(nil, 1, events)
				if _, err := readBothWays(t, payload); err != nil {
					t.Fatal(err)
				}
			})
			var events []engine.Event
			for i := range uint64(64) {
				hash := blockhash.FromInt(tokens.DigestTerm(i) | 1<<33)
				events = append(events, engine.Event{Kind: engine.Removed, Hashes: []blockhash.Digest{hash}, Medium: engine.MediumGPU})
			}
			var d decoder
			if got, err := d.batch(enc.AppendBatch(nil, 1, events)); err != nil || len(got) != 1 || got[0].times != 64 || len(got[0].hashes) != 64 {
				t.Errorf("%s: 64 removals are read as %d events, %v", profile, len(got), err)
			}
		}
	}
}

// drawSent is an event with few different properties, so that neighbours are often alike and often nearly.
func drawSent(t *rapid.T) engine.Event {
	digest := rapid.SampledFrom([]blockhash.Digest{
		blockhash.FromInt(7), blockhash.FromInt(1 << 40), blockhash.FromInt(1<<63 + 9), blockhash.FromInt(1<<64 - 1),
		blockhash.FromBytes(bytes.Repeat([]byte{0xcf}, 32)), blockhash.FromBytes(bytes.Repeat([]byte{1}, 32)), blockhash.FromBytes(bytes.Repeat([]byte{2}, 16)),
	})
	ev := engine.Event{
		Kind:   rapid.SampledFrom([]engine.EventKind{engine.Removed, engine.Removed, engine.Removed, engine.Stored, engine.Cleared}).Draw(t, "kind"),
		Hashes: rapid.SliceOfN(digest, 1, 2).Draw(t, "hashes"),
		Group:  rapid.SampledFrom([]int{engine.NoGroup, 0, 0, 1}).Draw(t, "group"),
		Medium: rapid.SampledFrom([]string{engine.MediumGPU, engine.MediumGPU, "CPU", "elsewhere"}).Draw(t, "medium"),
	}
	if ev.Kind == engine.Stored {
		ev.Tokens, ev.BlockSize = rapid.SliceOfN(rapid.Uint32(), 4, 4).Draw(t, "tokens"), 2
	}
	return ev
}

// Events that a set has no place for are counted one by one, in a run too.
func TestSkippedRunsAreCounted(t *testing.T) {
	f := NewFold(testBlock)
	var events []testEvent
	for hash := range uint64(5) {
		events = append(events, testEvent{kind: "BlockRemoved", hashes: []uint64{hash | 1<<40}, medium: "elsewhere"})
		events = append(events, testEvent{kind: "BlockRemoved", hashes: []uint64{hash | 1<<41}, medium: "elsewhere"})
	}
	if err := f.Apply(0, 0, encode(t, append(events, removed(1<<40), removed(1<<41))...)); err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(Skips{Other: 10, Unknown: 2}, f.Skipped()); diff != "" {
		t.Errorf("skips (-want +got):\n%s", diff)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(encode(f, stored(nil, run(1, testBlock), 1), removed(1)))
	f.Add(encode(f, removed(1<<40), removed(1<<41), removed(7), removed(1<<63), removed(1<<62), testEvent{kind: "BlockRemoved", hashes: []uint64{1 << 40}, medium: "CPU"}))
	f.Add([]byte{0x93, 0xcb, 0, 0, 0, 0, 0, 0, 0, 0, 0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Add(bytes.Repeat([]byte{0x91}, 1<<12))
	f.Add([]byte{0x92, 0xc0, 0x91, 0x98, 0xab, 'B', 'l', 'o', 'c', 'k', 'S', 't', 'o', 'r', 'e', 'd', 0x91, 0xff, 0xc0, 0x91, 7, 1, 0xc0, 0xc0, 0x81, 0xa0, 1})
	// Byte hashes, of which the second is longer.
	short := append([]byte("\x92\xacBlockRemoved\x91\xc4\x08"), "12345678"...)
	long := append([]byte("\x92\xacBlockRemoved\x91\xc4\x09"), "123456789"...)
	f.Add(bytes.Join([][]byte{{0x92, 0xc0, 0x94}, short, short, long, long}, nil))
	f.Fuzz(func(t *testing.T, payload []byte) {
		events, err := readBothWays(t, payload)
		if err != nil {
			return
		}
		// What was read must be readable by the oracle too.
		dec := msgpack.NewDecoder(bytes.NewReader(payload))
		if n, err := dec.DecodeArrayLen(); err != nil || n < 2 {
			t.Fatalf("read %d events of a batch that msgpack/v5 refuses: %d elements, %v", len(events), n, err)
		}
	})
}

// Tokens of every width come out as they went in, whichever bytes are next to them: alone, in runs of one width,
// and in runs with another one among them.
func TestTokensOfEveryWidth(t *testing.T) {
	any := rapid.OneOf(rapid.Uint32Max(300), rapid.Uint32Max(70_000), rapid.Uint32())
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfN(any, 0, 9).Draw(t, "ids")
		for _, width := range []*rapid.Generator[uint32]{
			rapid.Uint32Range(256, math.MaxUint16), rapid.Uint32Min(math.MaxUint16 + 1), rapid.Uint32Max(127),
		} {
			ids = append(ids, rapid.SliceOfN(width, 0, 13).Draw(t, "alike")...)
		}
		if ids = append(ids, any.Draw(t, "last")); len(ids) > 1 {
			ids[rapid.IntRange(0, len(ids)-1).Draw(t, "place")] = any.Draw(t, "other")
		}
		f := NewFold(len(ids))
		enc, err := wire.New("vllm-0.25", wire.Options{IntHashes: true})
		if err != nil {
			t.Fatal(err)
		}
		payload := enc.AppendBatch(nil, 1, []engine.Event{{
			Kind: engine.Stored, Hashes: []blockhash.Digest{blockhash.FromInt(5)}, Tokens: ids, BlockSize: len(ids), Medium: engine.MediumGPU,
		}})
		if err := f.Apply(0, 0, payload); err != nil {
			t.Fatal(err)
		}
		set, _ := f.Announced()
		if got, want := set[5].Content, tokens.ContentHash(ids); got != want {
			t.Fatalf("%v has content %d, want %d", ids, got, want)
		}
	})
}
