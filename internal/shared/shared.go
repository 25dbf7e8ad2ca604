// Package shared finds the reference material that tests compare against: golden bytes, public traces
// and timings of real runs, kept beside the project and never copied into it.
//
// Only tests import it. Without the material a test is skipped by name; with FLEETDRILL_REQUIRE_SHARED=1
// it fails, so that a continuous-integration run cannot pass by missing it.
package shared

import (
	"bufio"
	"iter"
	"os"
	"path/filepath"
	"testing"
)

// maxLine bounds one line of a JSON-lines file.
const maxLine = 16 << 20

// Path is the path of a file under the shared folder, which stands beside the folder of go.mod.
func Path(t testing.TB, name string) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("no go.mod above the working directory")
		}
		dir = parent
	}
	path := filepath.Join(filepath.Dir(dir), "shared", filepath.FromSlash(name))
	if _, err := os.Stat(path); err != nil {
		if os.Getenv("FLEETDRILL_REQUIRE_SHARED") == "1" {
			t.Fatalf("shared/%s is missing and FLEETDRILL_REQUIRE_SHARED=1: %v", name, err)
		}
		t.Skipf("shared/%s is not here: %v", name, err)
	}
	return path
}

// Lines yields the lines of a file under the shared folder, without their line ends. A line is valid
// until the next one is asked for.
func Lines(t testing.TB, name string) iter.Seq[[]byte] {
	t.Helper()
	path := Path(t, name)
	return func(yield func([]byte) bool) {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		sc := bufio.NewScanner(f)
		sc.Buffer(make([]byte, 64<<10), maxLine)
		for sc.Scan() {
			if !yield(sc.Bytes()) {
				return
			}
		}
		if err := sc.Err(); err != nil {
			t.Fatalf("reading shared/%s: %v", name, err)
		}
	}
}
