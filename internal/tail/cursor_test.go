package tail

import (
	"encoding/binary"
	"math"
	"testing"

	"pgregory.net/rapid"

	"fleetdrill/mockworker/blockhash"
)

// reference judges from everything that an incarnation's batches were, without a bound on memory.
type reference struct {
	seen        map[uint64]mark
	start, high uint64
}

func (r *reference) judge(seq, hash uint64, live bool) verdict {
	m, known := r.seen[seq]
	switch {
	case len(r.seen) == 0:
		return first
	case seq == r.high+1:
		return expected
	case seq > r.high:
		return gapped
	case seq < r.start || known && m.hash != hash:
		return restarted
	case !known:
		return late
	case live && !m.live:
		return overlap
	}
	return duplicate
}

func TestCursorAgainstReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c cursor
		r := reference{seen: map[uint64]mark{}}
		for range rapid.IntRange(1, 60).Draw(t, "batches") {
			seq, live := rapid.Uint64Max(12).Draw(t, "seq"), rapid.Bool().Draw(t, "live")
			hash := seq + 100*rapid.Uint64Max(1).Draw(t, "another publisher")
			got, want := c.judge(seq, hash, live), r.judge(seq, hash, live)
			if got != want {
				t.Fatalf("batch %d: verdict %d, want %d", seq, got, want)
			}
			switch got {
			case restarted:
				c, r = cursor{}, reference{seen: map[uint64]mark{}}
			case duplicate:
				continue
			}
			if len(r.seen) == 0 {
				r.start, r.high = seq, seq
			}
			c.accept(seq, hash, live)
			r.seen[seq], r.high = mark{hash, live}, max(r.high, seq)
		}
	})
}

// A jump by any distance costs the marks there are, not the distance.
func TestCursorForgets(t *testing.T) {
	var c cursor
	for seq := range uint64(memory + 50) {
		c.accept(seq, seq, true)
	}
	if len(c.seen) != memory || c.judge(49, 49, true) != restarted || c.judge(50, 50, true) != duplicate {
		t.Errorf("%d marks, verdicts %d and %d", len(c.seen), c.judge(49, 49, true), c.judge(50, 50, true))
	}
	c.accept(math.MaxUint64-1, 1, true)
	if len(c.seen) != 1 || c.judge(1000, 1000, true) != restarted {
		t.Errorf("%d marks after a jump", len(c.seen))
	}
}

// FuzzMessage feeds a tailer what a hostile publisher may send. Whatever it is, it makes lines that can be
// printed, and a number or a complaint for every message.
func FuzzMessage(f *testing.F) {
	f.Add([]byte{0x92, 0xcb, 0, 0, 0, 0, 0, 0, 0, 0, 0x91, 0x91, 0xa1, 'x'}, uint64(0), uint64(7))
	f.Add([]byte{0x93, 0xc0, 0x91, 0x81, 0xa4, 't', 'y', 'p', 'e', 0xb0, 'A', 'l', 'l', 'B', 'l', 'o', 'c', 'k', 's', 'C', 'l', 'e', 'a', 'r', 'e', 'd', 0xc0}, uint64(5), uint64(math.MaxUint64))
	f.Add([]byte{0xdd, 0xff, 0xff, 0xff, 0xff}, uint64(1), uint64(0))
	f.Fuzz(func(t *testing.T, payload []byte, one, two uint64) {
		lines := 0
		tl := newTailer(Options{Algorithms: []Algorithm{{Name: "SGLang", Chain: chain(blockhash.NewSGLang())}}}, nil,
			func(l Line) {
				if l.String() == "" {
					t.Fatal("a line says nothing")
				}
				lines++
			})
		for _, seq := range []uint64{one, two, one} {
			before := lines
			tl.message(1, [][]byte{[]byte("topic"), binary.BigEndian.AppendUint64(nil, seq), payload})
			if lines == before {
				t.Fatalf("batch %d left no line", seq)
			}
		}
		tl.end(1)
	})
}
