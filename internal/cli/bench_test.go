package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func benchMain(t *testing.T, args ...string) (stdout string, code int, errs string) {
	t.Helper()
	var out, errOut bytes.Buffer
	code = Main(append([]string{"bench"}, args...), &out, &errOut)
	return out.String(), code, errOut.String()
}

func TestBenchMistakesAreUsageErrors(t *testing.T) {
	cache := t.TempDir()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"index", "--index", "chain,nosuch"}, `--index: kv index "nosuch" is not one of`},
		{[]string{"index", "--index", "chain,chain"}, "given twice"},
		{[]string{"index", "--shape", "round"}, `--shape "round": want mooncake or llmd`},
		{[]string{"index", "--offered", "-1"}, "--offered -1: want a rate above 0"},
		{[]string{"index", "--offered", "0"}, "--offered 0: want a rate above 0"},
		{[]string{"index", "--offered", "nan"}, "--offered NaN: want a rate above 0"},
		{[]string{"index", "--lanes", "0"}, "--lanes 0"},
		{[]string{"index", "--rows", "9-2"}, `--rows: rows "9-2": want A-B`},
		{[]string{"index", "--duplication", "0"}, "duplication 0: want 1 to 1000"},
		{[]string{"index", "--trace", filepath.Join(cache, "none")}, "no such file or directory"},
		{[]string{"churn", "--events", "0"}, "out of its bounds"},
		{[]string{"decision", "--workers", "0"}, "--workers 0: want 1 to 4096"},
		{[]string{"decision", "--policy", "wise"}, `policy "wise" is not known, want some of`},
		{[]string{"memory", "extra"}, "takes no argument"},
		{[]string{"speed"}, `unknown command "speed"`},
	} {
		args := c.args
		if args[0] == "index" {
			args = append(args, "--cache", cache)
		}
		if _, code, errs := benchMain(t, args...); code != exitUsage || !strings.Contains(errs, c.want) {
			t.Errorf("%v: exit %d, %s; want %d and %q", args, code, errs, exitUsage, c.want)
		}
	}
	if files, _ := os.ReadDir(cache); len(files) > 0 {
		t.Errorf("mistakes left %v", files)
	}
}

// A public corpus that does not fit or is damaged is named, and nothing is kept of it.
func TestForeignCorporaAreNamed(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "bad.smg")
	if err := os.WriteFile(path, []byte("SMGMCK01\x01"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, code, errs := benchMain(t, "ladder", "--corpus", path, "--cache", filepath.Join(dir, "cache"), "--index", "null")
	if code != exitHarness || !strings.Contains(errs, path) || !strings.Contains(errs, "it is cut short") {
		t.Fatalf("exit %d: %s", code, errs)
	}
}

func TestBenchHelpNamesItsBenches(t *testing.T) {
	out, code, _ := benchMain(t, "--help")
	if code != exitPass || strings.Contains(out, "trial ") {
		t.Fatalf("exit %d\n%s", code, out)
	}
	for _, name := range []string{"index", "ladder", "scaling", "churn", "memory", "decision"} {
		if !strings.Contains(out, "\n  "+name+" ") {
			t.Errorf("%s is not in\n%s", name, out)
		}
	}
}
