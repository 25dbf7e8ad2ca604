package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// runDrill runs `fleetdrill drill args...`.
func runDrill(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errOut bytes.Buffer
	code = Main(append([]string{"drill"}, args...), &out, &errOut)
	return out.String(), errOut.String(), code
}

// TestNewDrillPlans: what `drill new` prints can be planned as it is, by the next command a person types.
func TestNewDrillPlans(t *testing.T) {
	text, stderr, code := runDrill(t, "new", "my-drill")
	if code != exitPass {
		t.Fatal(stderr)
	}
	file := filepath.Join(t.TempDir(), "my-drill.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	plan, stderr, code := runDrill(t, "plan", file, "--seed", "3")
	if code != exitPass || !strings.HasPrefix(plan, "my-drill, seed 3:") {
		t.Errorf("exit %d: %s%s", code, plan, stderr)
	}
}

func TestNewDrillNeedsAName(t *testing.T) {
	for _, args := range [][]string{{"new"}, {"new", "a", "b"}, {"new", "9 lives"}} {
		if _, stderr, code := runDrill(t, args...); code != exitUsage || stderr == "" {
			t.Errorf("%q: exit %d, %q", args, code, stderr)
		}
	}
}

func TestListNamesTheBuiltInDrills(t *testing.T) {
	text, stderr, code := runDrill(t, "list", "--json")
	if code != exitPass {
		t.Fatal(stderr)
	}
	var drills []listedDrill
	if err := json.Unmarshal([]byte(text), &drills); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(drills, func(d listedDrill) bool { return d.Name == "engine-killed" })
	if i < 0 {
		t.Fatalf("no engine-killed in %s", text)
	}
	d := drills[i]
	if d.Summary == "" || d.Topology != "direct" || !slices.Contains(d.Tags, "core") || !slices.Equal(d.Control, []string{"liveness-off"}) {
		t.Errorf("%+v", d)
	}
	// The file as listed is an argument of plan and run, also where there is no such file.
	t.Chdir(t.TempDir())
	if _, stderr, code := runDrill(t, "plan", d.File); code != exitPass {
		t.Error(stderr)
	}
	table, _, _ := runDrill(t, "list")
	if lines := strings.Count(table, "\n"); lines != len(drills)+1 {
		t.Errorf("%d lines for %d drills:\n%s", lines, len(drills), table)
	}
}

func TestSchemaIsJSON(t *testing.T) {
	text, stderr, code := runDrill(t, "schema")
	if code != exitPass {
		t.Fatal(stderr)
	}
	var s struct {
		Schema string `json:"$schema"`
	}
	if err := json.Unmarshal([]byte(text), &s); err != nil || !strings.Contains(s.Schema, "2020-12") {
		t.Errorf("%q: %v", s.Schema, err)
	}
}
