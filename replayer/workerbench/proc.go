package workerbench

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/shirou/gopsutil/v3/process"
)

// usage is what a process holds and has used.
type usage struct {
	rss, pss float64 // bytes
	peak     float64 // largest rss so far
	cpu      float64 // seconds, user and system
}

// usageOf reads a process from /proc. Its CPU has the kernel's resolution of 10 ms, so that only seconds of
// work give a figure.
func usageOf(pid int) (u usage, err error) {
	p, err := process.NewProcess(int32(pid))
	if err != nil {
		return u, fmt.Errorf("reading process %d: %w", pid, err)
	}
	times, err := p.Times()
	if err != nil {
		return u, fmt.Errorf("reading the CPU time of process %d: %w", pid, err)
	}
	u.cpu = times.User + times.System
	for _, f := range []struct {
		file, key string
		to        *float64
	}{{"status", "VmRSS:", &u.rss}, {"status", "VmHWM:", &u.peak}, {"smaps_rollup", "Pss:", &u.pss}} {
		if *f.to, err = memoryLine(pid, f.file, f.key); err != nil {
			return u, err
		}
	}
	return u, nil
}

// memoryLine reads one line such as "VmHWM: 1234 kB" of a file in /proc/PID, in bytes. VmHWM and Pss are
// read by no library in use here: the largest memory so far, and a process's share of it, in which what n
// processes have in common counts 1/n.
func memoryLine(pid int, file, key string) (float64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		return 0, fmt.Errorf("reading the memory of process %d: %w", pid, err)
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, key); ok {
			kb, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 64)
			return kb * 1024, err
		}
	}
	return 0, fmt.Errorf("/proc/%d/%s has no %s", pid, file, key)
}

// loadAverage is the machine's over the last minute.
func loadAverage() (float64, error) {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0, fmt.Errorf("reading the load average: %w", err)
	}
	first, _, _ := strings.Cut(string(data), " ")
	return strconv.ParseFloat(first, 64)
}
