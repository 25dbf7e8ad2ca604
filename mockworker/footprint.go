package mockworker

import (
	"bufio"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// releaseBoot gives back the memory that only starting needed: the heap's, and the pages of the program
// itself that were read to set up packages which a worker never uses again. They stay in the page cache, and
// what is used comes back with a minor fault. A worker that cannot do so is merely larger.
func releaseBoot() {
	debug.FreeOSMemory()
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return
	}
	defer maps.Close()
	for sc := bufio.NewScanner(maps); sc.Scan(); {
		if from, size, ok := programText(sc.Text(), exe); ok {
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, from, size, unix.MADV_DONTNEED)
		}
	}
}

// garbageRoom is the garbage that may gather before it is collected, beside a heap that is mostly block pools.
const garbageRoom = 16 << 20

// boundGarbage keeps the block pools from being a reason for garbage: they are on the heap from the beginning,
// and the collector would let as much garbage again gather, a hundred megabytes beside a million blocks. It
// is called when the workers stand and undone by the function it returns. GOGC in the environment wins.
func boundGarbage() (undo func()) {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	percent := garbagePercent(m.HeapAlloc)
	if _, set := os.LookupEnv("GOGC"); set || percent >= 100 {
		return func() {}
	}
	before := debug.SetGCPercent(percent)
	return func() { debug.SetGCPercent(before) }
}

// garbagePercent is the GOGC that leaves garbageRoom beside so many live bytes, within what the collector does
// well with.
func garbagePercent(live uint64) int {
	return int(min(100, max(20, 100*garbageRoom/max(live, 1))))
}

// programText reads a line of /proc/self/maps: is it a part of the program that nobody can have written to?
func programText(line, exe string) (from, size uintptr, ok bool) {
	f := strings.Fields(line)
	if len(f) < 6 || f[5] != exe || f[1] != "r-xp" && f[1] != "r--p" {
		return 0, 0, false
	}
	a, b, ok := strings.Cut(f[0], "-")
	if !ok {
		return 0, 0, false
	}
	lo, err := strconv.ParseUint(a, 16, 64)
	if err != nil {
		return 0, 0, false
	}
	hi, err := strconv.ParseUint(b, 16, 64)
	if err != nil || hi <= lo {
		return 0, 0, false
	}
	return uintptr(lo), uintptr(hi - lo), true
}
