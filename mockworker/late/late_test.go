package late

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"fleetdrill/mockworker/blockhash"
	"fleetdrill/mockworker/engine"
)

// TestStories runs the stories in testdata. Events are written as they are read aloud: "+a,b" stores blocks
// a and b, "-a" removes a, "clear" clears.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var r *Removals
		var now time.Duration
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out []engine.Event
			switch d.Cmd {
			case "new": // Example: new steps=2, new by=3s
				now = 0
				o, err := options(t, d)
				if err != nil {
					return err.Error()
				}
				r = New(o)
				return "ok"
			case "wait": // Example: wait 2s
				step, err := time.ParseDuration(d.CmdArgs[0].Key)
				if err != nil {
					t.Fatal(err)
				}
				now += step
				return "it is " + now.String()
			case "step":
				out = r.Filter(int64(now), parse(d.Input))
			case "due":
				out = r.Due(int64(now))
			case "flush":
				out = r.Flush()
			default:
				t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
			}
			said := show(out)
			if at, ok := r.Next(); ok {
				said += fmt.Sprintf("\n%d held, the next one until %s", r.Held(), time.Duration(at))
			}
			return said
		})
	})
}

func options(t *testing.T, d *datadriven.TestData) (o Options, err error) {
	var by string
	d.MaybeScanArgs(t, "steps", &o.Steps)
	if d.MaybeScanArgs(t, "by", &by) {
		if o.By, err = time.ParseDuration(by); err != nil {
			t.Fatal(err)
		}
	}
	return o, o.Validate()
}

// named is the hash of a block with a name.
func named(name string) blockhash.Digest { return blockhash.FromBytes([]byte(name + "-------------")) }

func parse(text string) (events []engine.Event) {
	for _, word := range strings.Fields(text) {
		e := engine.Event{Kind: engine.Cleared}
		if word != "clear" {
			e.Kind = map[byte]engine.EventKind{'+': engine.Stored, '-': engine.Removed}[word[0]]
			for _, name := range strings.Split(word[1:], ",") {
				e.Hashes = append(e.Hashes, named(name))
			}
		}
		events = append(events, e)
	}
	return events
}

func show(events []engine.Event) string {
	if len(events) == 0 {
		return "nothing"
	}
	var words []string
	for _, e := range events {
		var names []string
		for _, h := range e.Hashes {
			names = append(names, strings.TrimRight(string(h.Bytes()), "-"))
		}
		words = append(words, map[engine.EventKind]string{engine.Stored: "+", engine.Removed: "-", engine.Cleared: "clear"}[e.Kind]+
			strings.Join(names, ","))
	}
	return strings.Join(words, " ")
}

// What comes out is what went in, each block's events in the order they came, and all else too but for
// removals that moved back. With its copies counted, a block is never known less than it is held.
func TestPerBlockOrderIsKept(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := Options{Steps: rapid.IntRange(0, 4).Draw(t, "steps")}
		if o.Steps == 0 {
			o.By = time.Duration(rapid.IntRange(0, 40).Draw(t, "by"))
		}
		r := New(o)
		in, out := map[string][]string{}, map[string][]string{}
		note := func(to map[string][]string, events []engine.Event) {
			for _, word := range strings.Fields(show(events)) {
				for i := range 6 {
					if name := strconv.Itoa(i); word == "clear" || strings.Contains(word, name) {
						to[name] = append(to[name], word[:1])
					}
				}
			}
		}
		var now int64
		for range rapid.IntRange(1, 60).Draw(t, "steps taken") {
			now += int64(rapid.IntRange(0, 20).Draw(t, "pause"))
			var text []string
			for range rapid.IntRange(0, 4).Draw(t, "events") {
				word := rapid.SampledFrom([]string{"+", "-", "-", "clear"}).Draw(t, "kind")
				if word != "clear" {
					first := rapid.IntRange(0, 5).Draw(t, "block")
					word += strconv.Itoa(first)
					if rapid.Bool().Draw(t, "two") {
						word += "," + strconv.Itoa((first+1)%6)
					}
				}
				text = append(text, word)
			}
			events := parse(strings.Join(text, " "))
			note(in, events)
			got := slices.Clone(r.Filter(now, events))
			if rapid.Bool().Draw(t, "asks between") {
				got = append(got, r.Due(now)...)
			}
			note(out, got)
			if at, ok := r.Next(); ok && at < now && o.Steps == 0 {
				t.Fatalf("due since %d at %d and still held", at, now)
			}
			for i := range events { // the engine's memory is another step's
				clear(events[i].Hashes)
			}
			for name, want := range in {
				if !slices.Equal(out[name], want[:len(out[name])]) {
					t.Fatalf("block %s: %v went in, %v came out", name, want, out[name])
				}
				for _, held := range want[len(out[name]):] {
					if held != "-" {
						t.Fatalf("block %s: %v went in, %v came out", name, want, out[name])
					}
				}
			}
		}
		note(out, r.Flush())
		if fmt.Sprint(in) != fmt.Sprint(out) || r.Held() != 0 {
			t.Fatalf("%v went in, %v came out, %d held", in, out, r.Held())
		}
	})
}

// A full list lets the oldest go early, so that memory is bounded whatever is asked for.
func TestHeldIsBounded(t *testing.T) {
	r := New(Options{By: MaxBy})
	e := engine.Event{Kind: engine.Removed, Hashes: make([]blockhash.Digest, 1)}
	for i := range MaxHeld + 3 {
		e.Hashes[0] = blockhash.FromInt(uint64(i + 1))
		out := r.Filter(0, []engine.Event{e})
		if want := max(0, i+1-MaxHeld); len(out) != min(want, 1) || want > 0 && out[0].Hashes[0] != blockhash.FromInt(uint64(want)) {
			t.Fatalf("removal %d: %d out", i, len(out))
		}
	}
}

// BenchmarkFilter is one removal in, one out, with 16,384 held.
func BenchmarkFilter(b *testing.B) {
	r := New(Options{Steps: 16_384})
	e := []engine.Event{{Kind: engine.Removed, Hashes: make([]blockhash.Digest, 1)}}
	n := uint64(0)
	b.ReportAllocs()
	for b.Loop() {
		n++
		e[0].Hashes[0] = blockhash.FromInt(n)
		r.Filter(int64(n), e)
	}
}
