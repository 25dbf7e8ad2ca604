// Package docs checks the parts of the documentation that are printed from code.
package docs

import (
	"flag"
	"os"
	"strings"
	"testing"

	"fleetdrill/drills/scenario"
)

var rewrite = flag.Bool("rewrite", false, "write what is generated instead of comparing it")

const (
	begin = "<!-- generated: go test ./docs -args -rewrite -->\n"
	end   = "<!-- end of generated -->\n"
)

// TestReferenceIsCurrent: the keys, faults and series in drills.md are those of the parser.
func TestReferenceIsCurrent(t *testing.T) {
	const file = "drills.md"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(text), begin)
	old, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no generated part between %q and %q", file, begin, end)
	}
	now := scenario.Reference()
	if now == old {
		return
	}
	if !*rewrite {
		t.Fatalf("the generated part of %s is stale: run go test ./docs -args -rewrite", file)
	}
	if err := os.WriteFile(file, []byte(head+begin+now+end+tail), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestExamplesParse: every whole scenario in the page is one.
func TestExamplesParse(t *testing.T) {
	text, err := os.ReadFile("drills.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, block := range strings.Split(string(text), "```yaml\n")[1:] {
		src, _, ok := strings.Cut(block, "```")
		if !ok || !strings.HasPrefix(src, "version: 1\n") {
			continue
		}
		n++
		if _, err := scenario.Parse("example.yaml", []byte(src)); err != nil {
			t.Error(err)
		}
	}
	if n == 0 {
		t.Error("the page has no whole scenario")
	}
}
