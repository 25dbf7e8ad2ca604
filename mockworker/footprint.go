package mockworker

import (
	"bufio"
	"os"
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
