package report

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"fleetdrill/drills/record"
	"fleetdrill/drills/scenario"
)

// Files of a run folder beside those of the record and those that Write leaves.
const (
	// ScenarioFile is what was run. RulesFile is there when the verdict was taken by other rules than that:
	// a recheck may not change what the folder says was run.
	ScenarioFile = "scenario.yaml"
	RulesFile    = "rules.yaml"
	VerdictFile  = "verdict.json"
	PageFile     = "report.html"
	planFile     = "plan.json"
	envFile      = "env.json"
)

// Resolve finds the run folder that a person meant: a folder, a link to one such as `latest`, or the
// drill's folder above, which means its latest run.
func Resolve(path string) (string, error) {
	dir, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", fmt.Errorf("looking for a run folder: %w", err)
	}
	if has(dir, record.HeadFile) {
		return dir, nil
	}
	if latest, err := filepath.EvalSymlinks(filepath.Join(dir, "latest")); err == nil && has(latest, record.HeadFile) {
		return latest, nil
	}
	if has(dir, planFile) {
		return "", fmt.Errorf("%s: the run has not ended, or was cut off: there is a %s and no %s", dir, planFile, record.HeadFile)
	}
	return "", fmt.Errorf("%s: not a run folder: there is no %s", dir, record.HeadFile)
}

// has reports whether a folder holds a file; one that cannot be looked at counts as missing, and what then
// reads it says why.
func has(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name))
	return err == nil
}

// Open reads a run folder back into what Write was given, with dir as Resolve returned it. The command
// that reproduces the run is the one that works from the folder alone, since the scenario's own file may
// be elsewhere or newer by now.
func Open(dir string) (Run, error) {
	r := Run{Reproduce: "fleetdrill incident reproduce " + dir}
	var err error
	if r.Record, err = record.Read(dir); err != nil {
		return Run{}, err
	}
	if err := record.ReadJSON(filepath.Join(dir, VerdictFile), &r.Drill); err != nil {
		return Run{}, err
	}
	r.Drill.RunDir = dir
	rules := ScenarioFile
	if has(dir, RulesFile) {
		rules = RulesFile
	}
	if r.Scenario, err = scenario.ReadFile(filepath.Join(dir, rules)); err != nil {
		return Run{}, err
	}
	var env struct{ Started, Version string }
	if err := record.ReadJSON(filepath.Join(dir, envFile), &env); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Run{}, err
	}
	r.Started, r.Version = env.Started, env.Version
	return r, nil
}
