package trace

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"fleetdrill/internal/leaks"
)

// lines is a trace of n rows of one block.
func lines(n int) (text []byte) {
	for i := range n {
		text = (&Row{StampNs: int64(i) * nsPerMs, Input: 7, Output: i, IDs: []uint64{uint64(i * i)}}).AppendJSON(text)
	}
	return text
}

func write(t *testing.T, path string, text []byte) {
	t.Helper()
	w, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestFilesAreCompressedBySuffix(t *testing.T) {
	defer leaks.None(t)
	text := lines(1000)
	want, end := all(NewReader(bytes.NewReader(text), "", Options{}))
	if !errors.Is(end, io.EOF) {
		t.Fatal(end)
	}
	for suffix, magic := range map[string]string{"": `{"timestamp"`, ".gz": "\x1f\x8b", ".zst": "\x28\xb5\x2f\xfd"} {
		path := filepath.Join(t.TempDir(), "t.jsonl"+suffix)
		write(t, path, text)
		raw, err := os.ReadFile(path)
		if err != nil || !bytes.HasPrefix(raw, []byte(magic)) {
			t.Fatalf("%s begins with %q, %v", path, raw[:8], err)
		}
		r, err := Open(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		got, end := all(r)
		if !errors.Is(end, io.EOF) || r.Close() != nil {
			t.Fatalf("%s ends with %v", path, end)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("%s (-want +got)\n%s", path, d)
		}
	}
}

// Whatever byte a compressed file is cut at, what came before is read, and the cut is a place in an error
// or one row skipped.
func TestCompressedFilesCutShort(t *testing.T) {
	defer leaks.None(t)
	text := lines(3000)
	want, _ := all(NewReader(bytes.NewReader(text), "", Options{}))
	for _, suffix := range []string{".gz", ".zst"} {
		path := filepath.Join(t.TempDir(), "t.jsonl"+suffix)
		write(t, path, text)
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, size := range []int{len(raw) / 3, len(raw) / 2, len(raw) - 20, len(raw) - 1} {
			if err := os.WriteFile(path, raw[:size], 0o600); err != nil {
				t.Fatal(err)
			}
			checkCut(t, path, want)
		}
	}
}

func checkCut(t *testing.T, path string, want []Row) {
	t.Helper()
	strict, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer strict.Close()
	rows, end := all(strict)
	if d := cmp.Diff(want[:len(rows)], rows, cmpopts.EquateEmpty()); d != "" {
		t.Fatalf("%s (-want +got)\n%s", path, d)
	}
	var bad *RowError
	if !errors.As(end, &bad) || bad.Line != len(rows)+1 || !strings.Contains(end.Error(), "the compressed file is cut short") {
		t.Fatalf("%s: after %d rows %v", path, len(rows), end)
	}
	lenient, err := Open(path, Options{SkipBad: true})
	if err != nil {
		t.Fatal(err)
	}
	defer lenient.Close()
	again, end := all(lenient)
	if len(again) != len(rows) || lenient.Skipped().Count != 1 || errors.Is(end, io.EOF) != (len(rows) > 0) {
		t.Fatalf("%s: %d rows, skipped %+v, then %v; want %d rows", path, len(again), lenient.Skipped(), end, len(rows))
	}
}

func TestFilesThatAreNoTrace(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct{ content, want string }{
		"plain.jsonl.gz":  {"hello hello hello", "opening trace DIR/plain.jsonl.gz: gzip: invalid header"},
		"plain.jsonl.zst": {"hello hello hello", "reading DIR/plain.jsonl.zst, line 1: invalid input: magic number mismatch"},
		"empty.jsonl":     {"", "DIR/empty.jsonl: empty, no row in it"},
		"empty.jsonl.gz":  {"", "DIR/empty.jsonl.gz: empty, no row in it"},
		"empty.jsonl.zst": {"", "DIR/empty.jsonl.zst: empty, no row in it"},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
			t.Fatal(err)
		}
		got := strings.ReplaceAll(openError(path).Error(), dir, "DIR")
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	if err := openError(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := Create(filepath.Join(dir, "none", "t.gz")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing folder: %v", err)
	}
}

// openError is the first error of opening and reading a file.
func openError(path string) error {
	r, err := Open(path, Options{SkipBad: true})
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = all(r)
	return err
}
