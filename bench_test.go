package main_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The bench as people run it, at a size that takes seconds: trials are processes of their own, the corpus is
// made once and found again, and the same file comes back through the public format.
func TestBenchRunsItsTrialsInFreshProcesses(t *testing.T) {
	dir := t.TempDir()
	bench := func(args ...string) (stdout, stderr string) {
		t.Helper()
		cmd := command(t, append([]string{"bench"}, args...)...)
		var out, errs strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil {
			t.Fatalf("bench %v: %v\n%s", args, err, errs.String())
		}
		return out.String(), errs.String()
	}
	type report struct {
		Corpus struct {
			Trace    string `json:"trace"`
			Requests int    `json:"requests"`
			BlockOps int    `json:"block_ops"`
			Resident int    `json:"resident"`
		} `json:"corpus"`
		Rows []struct {
			Index    string             `json:"index"`
			Lookup   map[string]float64 `json:"lookup_us"`
			Achieved float64            `json:"achieved"`
		} `json:"rows"`
		Trials []struct {
			Memberships int `json:"memberships"`
		} `json:"trials"`
	}
	read := func(s string) (r report) {
		t.Helper()
		if err := json.Unmarshal([]byte(s), &r); err != nil {
			t.Fatalf("%v\n%s", err, s)
		}
		return r
	}
	public, cache, plot := filepath.Join(dir, "public.smg"), filepath.Join(dir, "cache"), filepath.Join(dir, "plot.svg")
	common := []string{"--quick", "--offered", "0.5", "--index", "chain,null", "--cache", cache, "--json"}
	out, errs := bench(append([]string{"index", "--rows", "0-29", "--duplication", "1", "--workers", "4", "--write-corpus", public, "--plot", plot}, common...)...)
	first := read(out)
	if !strings.Contains(errs, "making the corpus of 30 rows") || first.Corpus.Requests != 30 || len(first.Rows) != 2 || first.Rows[0].Index != "chain" ||
		first.Rows[0].Lookup["p99"] <= 0 || first.Rows[0].Achieved <= 0 || first.Trials[0].Memberships != first.Corpus.Resident {
		t.Fatalf("%s\n%s", errs, out)
	}
	if svg, err := os.ReadFile(plot); err != nil || !strings.Contains(string(svg), "chain") {
		t.Errorf("the picture: %v", err)
	}
	out, _ = bench(append([]string{"index", "--corpus", public}, common...)...)
	if again := read(out); again.Corpus != first.Corpus {
		t.Errorf("through the public format %+v, before %+v", again.Corpus, first.Corpus)
	}
	_, errs = bench(append([]string{"index", "--rows", "0-29", "--duplication", "1", "--workers", "4"}, common...)...)
	if strings.Contains(errs, "making the corpus") {
		t.Errorf("the corpus was made again: %s", errs)
	}
}
