package trace

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// TestReader runs the stories of testdata/reader. Their one command reads its input as a trace:
//
//	read [skip-bad] [rows=A-B] [max-line=BYTES] [cut]
//
// cut takes away the line feed of the last line.
func TestReader(t *testing.T) {
	datadriven.Walk(t, "testdata/reader", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var o Options
			var rows string
			d.MaybeScanArgs(t, "rows", &rows)
			var err error
			if o.Rows, err = ParseRows(rows); err != nil {
				t.Fatal(err)
			}
			d.MaybeScanArgs(t, "max-line", &o.MaxLine)
			o.SkipBad = d.HasArg("skip-bad")
			text := d.Input
			if text != "" && !d.HasArg("cut") {
				text += "\n"
			}
			return tell(NewReader(strings.NewReader(text), "t.jsonl", o))
		})
	})
}

// tell is everything a Reader gives, as text.
func tell(r *Reader) string {
	var b strings.Builder
	var row Row
	for {
		err := r.Next(&row)
		if err != nil {
			if again := r.Next(&row); again != err {
				return fmt.Sprintf("first %v, then %v", err, again)
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			fmt.Fprintln(&b, "error:", err)
			break
		}
		fmt.Fprintf(&b, "row %d at %s ms: %d in, %d out, ids %d", row.N, appendMs(nil, row.StampNs), row.Input, row.Output, row.IDs)
		if row.Session != "" || row.DelayNs != 0 || row.Priority != 0 {
			fmt.Fprintf(&b, "; session %q, delay %s ms, priority %d", row.Session, appendMs(nil, row.DelayNs), row.Priority)
		}
		b.WriteByte('\n')
	}
	if s := r.Skipped(); s.Count > 0 {
		fmt.Fprintf(&b, "skipped %d\n", s.Count)
		for _, bad := range s.First {
			fmt.Fprintf(&b, "  %v\n", bad)
		}
	}
	return b.String()
}

// drawRow is a row that a trace can hold.
func drawRow(t *rapid.T) Row {
	row := Row{
		StampNs:  rapid.Int64Range(0, maxStampMs*nsPerMs).Draw(t, "stamp"),
		Input:    rapid.IntRange(1, 20*BlockTokens).Draw(t, "input"),
		Output:   rapid.IntRange(0, maxLength).Draw(t, "output"),
		Session:  rapid.String().Draw(t, "session"),
		DelayNs:  rapid.Int64Range(0, maxStampMs*nsPerMs).Draw(t, "delay"),
		Priority: rapid.IntRange(-maxID/2, maxID/2).Draw(t, "priority"),
	}
	n := blocks(row.Input)
	row.IDs = rapid.SliceOfN(rapid.Uint64Range(0, maxID), n, n).Draw(t, "ids")
	return row
}

func TestRowsSurviveWritingAndReading(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawRow(t)
		line := want.AppendJSON(nil)
		if line[len(line)-1] != '\n' {
			t.Fatalf("no line feed: %q", line)
		}
		var got Row
		if err := parse(line, &got); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("%s (-written +read)\n%s", line, d)
		}
	})
}

func TestReadErrorsAreNeverSkipped(t *testing.T) {
	broken := errors.New("the disk is gone")
	src := io.MultiReader(strings.NewReader(`{"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [0]}`+"\n"+`{"time`), failing{broken})
	r := NewReader(src, "t.jsonl", Options{SkipBad: true})
	var row Row
	if err := r.Next(&row); err != nil {
		t.Fatal(err)
	}
	err := r.Next(&row)
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "reading t.jsonl, line 2") {
		t.Fatalf("got %v", err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestParseRows(t *testing.T) {
	for text, want := range map[string]Rows{
		"":       {},
		"0-1999": {0, 2000},
		"7-7":    {7, 1},
		"7":      {7, 1},
		"100-":   {100, 0},
	} {
		got, err := ParseRows(text)
		if err != nil || got != want {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
		if again, err := ParseRows(got.String()); err != nil || again != want {
			t.Errorf("%q is written as %q, which is %v, %v", text, got, again, err)
		}
	}
	for _, text := range []string{"-", "-5", "5-4", "a-b", "1-2-3", "1-x", "1.5", " 1", "99999999999"} {
		if got, err := ParseRows(text); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}

// FuzzReader holds any bytes against what a Reader promises: every row can be sent and written again,
// every line with something on it is a row or is skipped, and without skipping the rows are the same up to
// the first bad one.
func FuzzReader(f *testing.F) {
	for _, seed := range []string{
		`{"timestamp": 0, "input_length": 600, "output_length": 3, "hash_ids": [0, 1]}` + "\n",
		`{"created_time": 1.5, "input_tokens": 1, "output_tokens": 0, "hash_ids": [9], "session_id": 4, "delay": 2e3, "priority": -1}`,
		`{"timestamp": 3, "input_length": 1, "output_length": 3, "hash_ids": [0]}` + "\n\n" + `{"timestamp": 1, "input_length": 1, "output_length": 3, "hash_ids": [0]}`,
		`{"timestamp": 0, "input_length": 1025, "output_length": 3, "hash_ids": [0, 9007199254740993, `,
		"\n0\n" + `{"timestamp": 3, "input_length": 1, "output_length": 3, "hash_ids": [0]}` + "\n" + `{"timestamp": 4, "input_len`,
		"null\n[]\n{}\n\"\xff\"\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		reader := NewReader(strings.NewReader(string(text)), "fuzz", Options{SkipBad: true, MaxLine: 4096})
		lenient, end := all(reader)
		skipped := reader.Skipped()
		if given := len(lenient) + skipped.Count; given != reader.rows {
			t.Fatalf("%d rows, but %d given and %d skipped", reader.rows, len(lenient), skipped.Count)
		}
		strict, first := all(NewReader(strings.NewReader(string(text)), "fuzz", Options{MaxLine: 4096}))
		if len(strict) > len(lenient) || cmp.Diff(strict, lenient[:len(strict)], cmpopts.EquateEmpty()) != "" {
			t.Fatalf("strict reading gives\n%v\nlenient reading\n%v", strict, lenient)
		}
		if bad := skipped.Count > 0; bad && errors.Is(first, io.EOF) || len(lenient) > 0 && !errors.Is(end, io.EOF) {
			t.Fatalf("%d rows skipped; strict reading ends with %v, lenient with %v", skipped.Count, first, end)
		}
		last := int64(0)
		for _, row := range lenient {
			if err := row.check(); err != nil || row.StampNs < last {
				t.Fatalf("row %+v after %d ns: %v", row, last, err)
			}
			last = row.StampNs
			again := Row{N: row.N}
			if err := parse(row.AppendJSON(nil), &again); err != nil || cmp.Diff(row, again, cmpopts.EquateEmpty()) != "" {
				t.Fatalf("%+v read back as %+v, %v", row, again, err)
			}
		}
	})
}

// all reads to the end and returns copies of the rows.
func all(r *Reader) (rows []Row, end error) {
	for {
		var row Row
		if err := r.Next(&row); err != nil {
			return rows, err
		}
		rows = append(rows, row)
	}
}

// BenchmarkReader reads rows of 24 ids.
func BenchmarkReader(b *testing.B) {
	row := Row{Input: 12_000, Output: 343}
	for i := range blocks(row.Input) {
		row.IDs = append(row.IDs, uint64(100_000+i))
	}
	text := strings.Repeat(string(row.AppendJSON(nil)), 1000)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		r := NewReader(strings.NewReader(text), "b", Options{})
		n := 0
		for r.Next(&row) == nil {
			n++
		}
		if n != 1000 {
			b.Fatalf("%d rows", n)
		}
	}
}
