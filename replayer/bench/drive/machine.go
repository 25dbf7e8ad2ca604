package drive

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// tickSeconds is the unit of CPU times in /proc: 100 a second on every Linux that Go runs on (USER_HZ).
const tickSeconds = 0.01

// usage is the CPU time spent so far: by the whole machine, by this process, and by every other process.
type usage struct {
	at       time.Time
	machine  float64 // seconds, all cores; negative when the system does not say
	own      float64
	byOthers map[int]procTime
}

type procTime struct {
	name    string
	seconds float64
}

// look takes the CPU times.
func look() usage {
	u := usage{at: time.Now(), machine: -1, byOthers: map[int]procTime{}}
	var r unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &r) == nil {
		u.own = seconds(r.Utime) + seconds(r.Stime)
	}
	if stat, err := os.ReadFile("/proc/stat"); err == nil {
		u.machine = busy(stat)
	}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is well-formed
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		if pid, p, ok := process(stat); ok && pid != os.Getpid() {
			u.byOthers[pid] = p
		}
	}
	return u
}

func seconds(t unix.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }

// busy is the first line of /proc/stat without idle and waiting time, in seconds; negative if it is not
// understood. Time stolen by other virtual machines counts: it was not ours.
func busy(stat []byte) float64 {
	line, _, _ := bytes.Cut(stat, []byte("\n"))
	fields := strings.Fields(string(line))
	if len(fields) < 9 || fields[0] != "cpu" {
		return -1
	}
	sum := 0.0
	for i, field := range fields[1:9] {
		n, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return -1
		}
		if i != 3 && i != 4 {
			sum += n * tickSeconds
		}
	}
	return sum
}

// process reads a line of /proc/PID/stat. The name stands in parentheses and may hold any character.
func process(stat []byte) (pid int, p procTime, ok bool) {
	from, to := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if from < 1 || to < from {
		return 0, p, false
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(stat[:from])))
	fields := strings.Fields(string(stat[to+1:]))
	if err != nil || len(fields) < 13 {
		return 0, p, false
	}
	user, err1 := strconv.ParseFloat(fields[11], 64)
	system, err2 := strconv.ParseFloat(fields[12], 64)
	return pid, procTime{string(stat[from+1 : to]), (user + system) * tickSeconds}, err1 == nil && err2 == nil
}

// Foreign is what others did with the machine's CPUs meanwhile.
type Foreign struct {
	// Cores is the CPU time of everyone else over the time that passed; negative when the system does not
	// say.
	Cores float64 `json:"cores"`
	// Busiest names the process that took most of it, when one took 5 % of a core or more.
	Busiest string `json:"busiest,omitempty"`
}

// noteworthy is the share of a core above which a foreign process is named.
const noteworthy = 0.05

// Watch begins to watch the machine; the function it returns says what others did since.
func Watch() func() Foreign {
	before := look()
	return func() Foreign { return look().since(before) }
}

// since is what others did between two looks.
func (u usage) since(before usage) Foreign {
	passed := u.at.Sub(before.at).Seconds()
	if u.machine < 0 || before.machine < 0 || passed <= 0 {
		return Foreign{Cores: -1}
	}
	f := Foreign{Cores: max(0, (u.machine-before.machine)-(u.own-before.own)) / passed}
	most := noteworthy
	for pid, p := range u.byOthers {
		if share := (p.seconds - before.byOthers[pid].seconds) / passed; share >= most {
			most = share
			f.Busiest = fmt.Sprintf("%s (%.2f of a core)", p.name, share)
		}
	}
	return f
}

// LoadAverage is the machine's load over the last minute, negative when the system does not say.
func LoadAverage() float64 {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return -1
	}
	first, _, _ := strings.Cut(string(b), " ")
	load, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return -1
	}
	return load
}

// AvailableMemory is what the system could give without swapping, in bytes; false when it does not say.
func AvailableMemory() (int64, bool) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(b)) {
		if kb, ok := strings.CutPrefix(line, "MemAvailable:"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(kb), "kB")), 10, 64)
			return n << 10, err == nil
		}
	}
	return 0, false
}
