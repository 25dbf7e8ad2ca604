package report

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"fleetdrill/drills/predicate"
	"fleetdrill/drills/record"
	"fleetdrill/scenarios"
)

// folder makes DRILL/RUN with a `latest` link beside it, as a run of the synthetic record leaves it.
func folder(t *testing.T, r Run) (dir, latest string) {
	t.Helper()
	drill, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir, latest = filepath.Join(drill, "20261129T120000Z-7"), filepath.Join(drill, "latest")
	src, err := fs.ReadFile(scenarios.FS(), "matrix/engine-killed.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []func() error{
		func() error { return os.Mkdir(dir, 0o755) },
		func() error { return os.Symlink(filepath.Base(dir), latest) },
		func() error { return os.WriteFile(filepath.Join(dir, ScenarioFile), src, 0o644) },
		func() error {
			return os.WriteFile(filepath.Join(dir, envFile), []byte(`{"version": "0.1.0", "started": "2026-11-29T12:00:00Z", "cores": 2}`), 0o644)
		},
		func() error { return record.Write(dir, r.Record) },
		func() error { return Write(dir, r) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	return dir, latest
}

// TestOpenIsTheInverseOfWrite: what a folder gives back draws the same pages.
func TestOpenIsTheInverseOfWrite(t *testing.T) {
	want := run(t, synthetic(2100*ms, true))
	dir, latest := folder(t, want)
	found, err := Resolve(latest)
	if err != nil || found != dir {
		t.Fatalf("Resolve(latest) = %s, %v; want %s", found, err, dir)
	}
	if found, err = Resolve(filepath.Dir(dir)); err != nil || found != dir {
		t.Fatalf("Resolve(the drill's folder) = %s, %v; want %s", found, err, dir)
	}
	got, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	want.Drill.RunDir, want.Reproduce, want.Scenario.Path = dir, got.Reproduce, got.Scenario.Path
	asWritten := cmp.Comparer(func(a, b *predicate.Expr) bool {
		return (a == nil) == (b == nil) && (a == nil || a.String() == b.String())
	})
	if d := cmp.Diff(want, got, asWritten, cmpopts.EquateEmpty()); d != "" {
		t.Error(d)
	}
}

// TestRulesOfARecheck: a page names the bounds of the rules that its verdict was taken by.
func TestRulesOfARecheck(t *testing.T) {
	dir, _ := folder(t, run(t, synthetic(2100*ms, true)))
	src, err := os.ReadFile(filepath.Join(dir, ScenarioFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, RulesFile), []byte(strings.Replace(string(src), "within: 2.5s", "within: 2s", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Scenario.Expect[0].Within.Seconds(); got != 2 {
		t.Errorf("within %g s, want the rules' 2 s", got)
	}
}

// TestForeignFolders: what is not a run folder is named as what it is.
func TestForeignFolders(t *testing.T) {
	dir, _ := folder(t, run(t, synthetic(2100*ms, true)))
	empty := t.TempDir()
	cut := t.TempDir()
	if err := os.WriteFile(filepath.Join(cut, planFile), []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(empty, "none"):      "no such file",
		empty:                             "not a run folder: there is no record.json",
		cut:                               "has not ended, or was cut off",
		filepath.Join(dir, "report.html"): "not a run folder",
	} {
		if _, err := Resolve(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Resolve(%s): %v, want %q", path, err, want)
		}
	}
	for name, want := range map[string]string{VerdictFile: "verdict.json:2: ", ScenarioFile: "scenario.yaml:1:", envFile: "env.json:2: "} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, name)
			sound, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte("{\n: ]"), 0o644); err != nil {
				t.Fatal(err)
			}
			defer os.WriteFile(path, sound, 0o644)
			if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %q", err, want)
			}
		})
	}
}
