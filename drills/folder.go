package drills

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// runFolder is one run's folder: OUT/DRILL/UTC-SEED.
type runFolder struct {
	Dir string
}

// newRunFolder makes the folder and points the drill's `latest` link at it. Two runs that begin in one
// second with one seed get different folders.
func newRunFolder(out, drill string, seed uint64, now time.Time) (runFolder, error) {
	parent := filepath.Join(out, drill)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return runFolder{}, fmt.Errorf("making the run folder: %w", err)
	}
	base := now.UTC().Format("20060102T150405Z") + "-" + strconv.FormatUint(seed, 10)
	name := base
	for i := 2; ; i++ {
		err := os.Mkdir(filepath.Join(parent, name), 0o755)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrExist) || i > 1000 {
			return runFolder{}, fmt.Errorf("making the run folder: %w", err)
		}
		name = base + "." + strconv.Itoa(i)
	}
	f := runFolder{Dir: filepath.Join(parent, name)}
	return f, f.pointLatest(parent, name)
}

// pointLatest replaces the link by renaming a new one over it, so that a reader never finds it missing.
func (f runFolder) pointLatest(parent, name string) error {
	tmp := filepath.Join(parent, ".latest-"+name)
	if err := os.Symlink(name, tmp); err != nil {
		return fmt.Errorf("linking the latest run: %w", err)
	}
	if err := os.Rename(tmp, filepath.Join(parent, "latest")); err != nil {
		return fmt.Errorf("linking the latest run: %w", err)
	}
	return nil
}

// path is a file of the folder.
func (f runFolder) path(name string) string { return filepath.Join(f.Dir, name) }

// writeJSON writes a value as indented JSON.
func (f runFolder) writeJSON(name string, v any) error {
	raw, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding %s: %w", name, err)
	}
	if err := os.WriteFile(f.path(name), append(raw, '\n'), 0o644); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}

// environment is env.json: where a run's figures come from.
type environment struct {
	Version string `json:"version"`
	Command string `json:"command"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Kernel  string `json:"kernel"`
	CPU     string `json:"cpu"`
	Cores   int    `json:"cores"`
	MemoryB int64  `json:"memory_bytes"`
	LoadAvg string `json:"load_avg"`
	Started string `json:"started"`
}

func readEnvironment(version string, now time.Time) environment {
	e := environment{Version: version, Command: strings.Join(os.Args, " "), Go: runtime.Version(), OS: runtime.GOOS + "/" + runtime.GOARCH,
		Cores: runtime.NumCPU(), CPU: cpuModel(), Started: now.UTC().Format(time.RFC3339)}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		e.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		e.MemoryB = int64(info.Totalram) * int64(info.Unit)
	}
	if raw, err := os.ReadFile("/proc/loadavg"); err == nil {
		e.LoadAvg = strings.TrimSpace(string(raw))
	}
	return e
}

// cpuModel is the first model name of /proc/cpuinfo, empty where there is none.
func cpuModel() string {
	raw, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(raw)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
