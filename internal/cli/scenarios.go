package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"fleetdrill/drills/scenario"
	"fleetdrill/scenarios"
)

// drillFile is a scenario and the text it was read from.
type drillFile struct {
	scenario *scenario.Scenario
	raw      []byte
}

// loadScenarios reads the drills that the arguments name: files and folders, or without any the built-in
// matrix. A name under scenarios/ that is not on disk is taken from the binary. Every mistake of every
// file is reported.
func loadScenarios(args []string) ([]drillFile, error) {
	if len(args) == 0 {
		args = []string{"scenarios/matrix"}
	}
	var out []drillFile
	var errs []error
	for _, arg := range args {
		fsys, name, err := locate(arg)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		found, err := readDrills(fsys, name, arg)
		out = append(out, found...)
		errs = append(errs, err)
	}
	return out, errors.Join(errs...)
}

// locate finds an argument on disk or, under scenarios/, in the binary.
func locate(arg string) (fs.FS, string, error) {
	_, err := os.Stat(arg)
	if err == nil {
		dir, base := filepath.Split(filepath.Clean(arg))
		return os.DirFS(filepath.Clean(dir)), base, nil
	}
	clean := filepath.ToSlash(filepath.Clean(arg))
	if inside, ok := strings.CutPrefix(clean, "scenarios/"); ok {
		if _, err := fs.Stat(scenarios.FS(), inside); err == nil {
			return scenarios.FS(), inside, nil
		}
	}
	return nil, "", fmt.Errorf("reading a scenario: %w", err)
}

// readDrills reads one file, or every .yaml of a folder. shown is how the user named it.
func readDrills(fsys fs.FS, name, shown string) ([]drillFile, error) {
	info, err := fs.Stat(fsys, name)
	if err != nil {
		return nil, fmt.Errorf("reading a scenario: %w", err)
	}
	if !info.IsDir() {
		f, err := readDrill(fsys, name, shown)
		if err != nil {
			return nil, err
		}
		return []drillFile{f}, nil
	}
	names, err := fs.Glob(fsys, path.Join(name, "*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("reading scenarios: %w", err)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("no .yaml file in %s", shown)
	}
	var out []drillFile
	var errs []error
	for _, n := range names {
		f, err := readDrill(fsys, n, path.Join(shown, path.Base(n)))
		out = append(out, f)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return out, nil
}

// maxScenario bounds a scenario file, in bytes; the parser has the same bound.
const maxScenario = 1 << 20

func readDrill(fsys fs.FS, name, shown string) (drillFile, error) {
	info, err := fs.Stat(fsys, name)
	if err != nil {
		return drillFile{}, fmt.Errorf("reading scenario %s: %w", shown, err)
	}
	if info.Size() > maxScenario {
		return drillFile{}, fmt.Errorf("reading scenario %s: %d bytes, more than %d", shown, info.Size(), maxScenario)
	}
	raw, err := fs.ReadFile(fsys, name)
	if err != nil {
		return drillFile{}, fmt.Errorf("reading scenario %s: %w", shown, err)
	}
	s, err := scenario.Parse(shown, raw)
	return drillFile{s, raw}, err
}
