package scenario

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fleetdrill/scenarios"
)

// TestMatrix: every embedded file is a valid drill, named after itself.
func TestMatrix(t *testing.T) {
	err := fs.WalkDir(scenarios.FS(), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		src, err := fs.ReadFile(scenarios.FS(), path)
		if err != nil {
			return err
		}
		s, err := Parse(path, src)
		if err != nil {
			t.Error(err)
			return nil
		}
		if want := strings.TrimSuffix(filepath.Base(path), ".yaml"); s.Name != want {
			t.Errorf("%s is named %q", path, s.Name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestEngineKilled pins the typed form of row 1.
func TestEngineKilled(t *testing.T) {
	src, err := fs.ReadFile(scenarios.FS(), "matrix/engine-killed.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Parse("engine-killed.yaml", src)
	if err != nil {
		t.Fatal(err)
	}
	checkGolden(t, "testdata/engine-killed.golden", dump(s))
}

func checkGolden(t *testing.T, path, got string) {
	t.Helper()
	if os.Getenv("REWRITE") != "" {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; REWRITE=1 accepts this:\n%s", path, got)
	}
}

// FuzzParse: no text makes the parser panic, and what it rejects has a position in the file.
func FuzzParse(f *testing.F) {
	src, err := fs.ReadFile(scenarios.FS(), "matrix/engine-killed.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(src)
	f.Add([]byte("version: 1\nexpect:\n  - {id: a, after: b.c, within: 1, that: p99(}\n"))
	f.Add([]byte("a: &x [*x, *x]\n"))
	f.Add([]byte("timeline: [{fault: kill}, {wait: a}, 3]\nload: {}\n"))
	f.Fuzz(func(t *testing.T, src []byte) {
		_, err := Parse("f.yaml", src)
		if err == nil {
			return
		}
		problems, ok := err.(Problems)
		if !ok || len(problems) == 0 {
			t.Fatalf("%T: %v", err, err)
		}
		for _, p := range problems {
			if p.Line < 1 || p.Col < 1 || p.Msg == "" {
				t.Errorf("%#v", p)
			}
		}
	})
}
