package trace

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The built-in trace is what Generate makes today. The bytes behind the compression are compared, since a
// new compressor may write others.
func TestDefaultIsGenerated(t *testing.T) {
	z, err := gzip.NewReader(bytes.NewReader(defaultTrace))
	if err != nil {
		t.Fatal(err)
	}
	stored, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	var made bytes.Buffer
	if err := Generate(&made, DefaultShape()); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(stored, made.Bytes()) {
		t.Fatal("Generate(DefaultShape()) gives other rows than the built-in trace; see default.go for the command")
	}
	if len(defaultTrace) > 100_000 {
		t.Errorf("the built-in trace has %d bytes, want less than 100,000", len(defaultTrace))
	}
}

// Any shape gives a trace that can be read, with what was asked for.
func TestGeneratedTracesKeepTheirShape(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Shape{
			Seed:     rapid.Uint64().Draw(t, "seed"),
			Rows:     rapid.IntRange(1, 400).Draw(t, "rows"),
			Span:     time.Duration(rapid.IntRange(3, 2000).Draw(t, "seconds")) * time.Second,
			Clients:  rapid.IntRange(1, 50).Draw(t, "clients"),
			MaxInput: rapid.IntRange(2*BlockTokens, 200_000).Draw(t, "max input"),
		}
		var text bytes.Buffer
		if err := Generate(&text, s); err != nil {
			t.Fatal(err)
		}
		rows, end := all(NewReader(&text, "made", Options{}))
		if !errors.Is(end, io.EOF) || len(rows) != s.Rows {
			t.Fatalf("%d rows, then %v", len(rows), end)
		}
		if rows[0].StampNs != 0 || rows[len(rows)-1].StampNs >= s.Span.Nanoseconds() {
			t.Fatalf("from %d to %d ns", rows[0].StampNs, rows[len(rows)-1].StampNs)
		}
		newest := uint64(0)
		for _, row := range rows {
			if row.IDs[0] != 0 || row.Input > s.MaxInput || row.Output < 1 || row.StampNs%(slotMs*nsPerMs) != 0 {
				t.Fatalf("row %+v", row)
			}
			for _, id := range row.IDs {
				if id > newest+1 {
					t.Fatalf("row %d has id %d before id %d", row.N, id, newest+1)
				}
				newest = max(newest, id)
			}
		}
	})
}

// A later turn of a conversation begins with all full blocks of an earlier one, is longer and comes in a
// later slot; some conversations fork.
func TestConversationsGrow(t *testing.T) {
	s := DefaultShape()
	s.Rows, s.Span = 4000, 20*time.Minute
	turns := make(map[string][]Row)
	later, forks := 0, 0
	err := s.each(func(row *Row) error {
		before := turns[row.Session]
		parent := -1
		for i, b := range before {
			full := b.IDs[:b.Input/BlockTokens]
			if row.Input > b.Input+b.Output && row.StampNs > b.StampNs && slices.Equal(row.IDs[:len(full)], full) {
				parent = i
			}
		}
		if len(before) > 0 && parent < 0 {
			t.Fatalf("row %d continues no turn of session %s", row.N, row.Session)
		}
		if len(before) > 0 {
			later++
		}
		if parent >= 0 && parent < len(before)-1 {
			forks++
		}
		kept := *row
		kept.IDs = slices.Clone(row.IDs)
		turns[row.Session] = append(before, kept)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if later < 800 || forks < 20 {
		t.Errorf("%d of 4,000 rows are later turns and %d fork, want at least 800 and 20", later, forks)
	}
}

// With as many rows and as much time as rows 0-3,999 of the public conversation trace, the figures are near
// theirs for any seed: span 1,302 s, mean input 13,312, mean output 347, reuse 0.331, round robin 0.114.
func TestGeneratedTracesResembleThePublicOne(t *testing.T) {
	for seed := range uint64(3) {
		s := DefaultShape()
		s.Seed, s.Rows, s.Span = seed, 4000, 1305*time.Second
		m := newMeter()
		if err := s.each(func(row *Row) error { m.add(row); return nil }); err != nil {
			t.Fatal(err)
		}
		got := m.stat()
		for _, c := range []struct {
			name           string
			got, low, high float64
		}{
			{"span", got.SpanS, 1295, 1305},
			{"mean input", got.MeanInput, 10_500, 15_000},
			{"p99 of input", float64(got.Input.P99), 75_000, 110_000},
			{"mean output", got.MeanOutput, 330, 355},
			{"token reuse", got.TokenReuse, 0.28, 0.40},
			{"round robin", got.RoundRobin8, 0.08, 0.15},
			{"most rows in a slot", float64(got.Slots.RowsMax), 16, 40},
		} {
			if c.got < c.low || c.got > c.high {
				t.Errorf("seed %d: %s %.4f, want %.4f to %.4f", seed, c.name, c.got, c.low, c.high)
			}
		}
	}
}

func TestShapesOutOfBounds(t *testing.T) {
	for name, change := range map[string]func(*Shape){
		"no rows":        func(s *Shape) { s.Rows = 0 },
		"too many rows":  func(s *Shape) { s.Rows = 10_000_001 },
		"no span":        func(s *Shape) { s.Span = 2 * time.Second },
		"too long":       func(s *Shape) { s.Span = 1000 * time.Hour },
		"no clients":     func(s *Shape) { s.Clients = 0 },
		"short prompts":  func(s *Shape) { s.MaxInput = 1000 },
		"prompts beyond": func(s *Shape) { s.MaxInput = maxLength + 1 },
	} {
		s := DefaultShape()
		change(&s)
		var out bytes.Buffer
		if err := Generate(&out, s); err == nil || out.Len() > 0 {
			t.Errorf("%s: %v and %d bytes", name, err, out.Len())
		}
	}
}

func TestGenerateSaysWhenItCannotWrite(t *testing.T) {
	full := errors.New("no space left")
	if err := Generate(refusing{full}, DefaultShape()); !errors.Is(err, full) {
		t.Fatalf("got %v", err)
	}
}

type refusing struct{ err error }

func (r refusing) Write([]byte) (int, error) { return 0, r.err }

func BenchmarkGenerate(b *testing.B) {
	s := DefaultShape()
	for b.Loop() {
		if err := Generate(io.Discard, s); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N*s.Rows)/b.Elapsed().Seconds(), "rows/s")
}
