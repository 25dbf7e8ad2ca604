package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fleetdrill/replayer/trace"
)

// runTrace runs `fleetdrill trace args...` with a standard input and returns what it printed and its exit
// code.
func runTrace(t *testing.T, stdin string, args ...string) (stdout string, code int, err error) {
	t.Helper()
	var out, errOut bytes.Buffer
	root := newRoot(&out, &errOut)
	root.SetIn(strings.NewReader(stdin))
	root.SetArgs(append([]string{"trace"}, args...))
	err = root.Execute()
	return out.String(), exitCode(err), err
}

func TestGeneratedTracesGoThroughStat(t *testing.T) {
	made, code, err := runTrace(t, "", "generate", "--rows", "50", "--span", "30s", "--seed", "3")
	if code != exitPass {
		t.Fatal(err)
	}
	figures, code, err := runTrace(t, made, "stat", "-", "--rows", "10-29", "--json")
	if code != exitPass {
		t.Fatal(err)
	}
	var s trace.Stat
	if err := json.Unmarshal([]byte(figures), &s); err != nil {
		t.Fatalf("%s: %v", figures, err)
	}
	if s.Rows != 20 || s.Trace != "standard input" {
		t.Errorf("%d rows of %q, want 20 of standard input", s.Rows, s.Trace)
	}
	path := filepath.Join(t.TempDir(), "t.jsonl.gz")
	if _, code, err = runTrace(t, "", "generate", "--rows", "50", "--span", "30s", "--seed", "3", "--out", path); code != exitPass {
		t.Fatal(err)
	}
	again, code, err := runTrace(t, "", "stat", path, "--rows", "10-29", "--json")
	if code != exitPass || again != strings.ReplaceAll(figures, "standard input", path) {
		t.Errorf("the file gives %s, %v, the pipe gave %s", again, err, figures)
	}
}

func TestStatWithoutAFileReadsTheBuiltInTrace(t *testing.T) {
	table, code, err := runTrace(t, "", "stat")
	if code != exitPass || !strings.HasPrefix(table, "trace  built-in\nrows   900\n") {
		t.Fatalf("%v\n%s", err, table)
	}
}

func TestTraceMistakesAreUsageErrors(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.jsonl")
	row := `{"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": [1]}` + "\n"
	if err := os.WriteFile(bad, []byte(row+"{}\n"+row), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"stat", bad}, bad + ":2: no timestamp"},
		{[]string{"stat", filepath.Join(dir, "none.jsonl")}, "none.jsonl: no such file or directory"},
		{[]string{"stat", "a", "b"}, "one trace at a time, got 2"},
		{[]string{"stat", "--rows", "9-2"}, `--rows: rows "9-2": want A-B`},
		{[]string{"stat", "--rows", "900-"}, "rows 900-: the trace has 900 rows, 0-899"},
		{[]string{"stat", "--colour"}, "unknown flag"},
		{[]string{"generate", "x"}, "takes no argument"},
		{[]string{"generate", "--rows", "0"}, "rows 0: want 1 to 10000000"},
		{[]string{"generate", "--out", filepath.Join(dir, "none", "t")}, "no such file or directory"},
		{[]string{"draw"}, `unknown command "draw"`},
	} {
		out, code, err := runTrace(t, "", c.args...)
		if code != exitUsage || out != "" || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: exit %d, %v, printed %q; want exit 4 and %q", c.args, code, err, out, c.want)
		}
	}
	table, code, err := runTrace(t, "", "stat", bad, "--skip-bad")
	if code != exitPass || !strings.Contains(table, "skipped  1 that") || !strings.Contains(table, bad+":2: no timestamp") {
		t.Errorf("--skip-bad: exit %d, %v\n%s", code, err, table)
	}
}
