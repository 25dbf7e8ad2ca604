package mockworker

import "testing"

// Only parts of the program are given back, and only those that nobody can have written to.
func TestProgramText(t *testing.T) {
	for line, want := range map[string]uintptr{
		"00400000-0155a000 r-xp 00000000 fe:00 123   /bin/fleetdrill": 0x115a000,
		"0155a000-0220e000 r--p 0115a000 fe:00 123   /bin/fleetdrill": 0xcb4000,
		"0220e000-022a0000 rw-p 01e0e000 fe:00 123   /bin/fleetdrill": 0,
		"7f0000000000-7f0000001000 r--p 00000000 fe:00 9 /lib/x.so":   0,
		"7ffd1000-7ffd2000 r-xp 00000000 00:00 0 [vdso]":              0,
		"c000000000-c000400000 rw-p 00000000 00:00 0":                 0,
		"zz-01 r--p 0 fe:00 123 /bin/fleetdrill":                      0,
		"":                                                            0,
	} {
		_, size, ok := programText(line, "/bin/fleetdrill")
		if size != want || ok != (want > 0) {
			t.Errorf("%q: %d bytes, %v", line, size, ok)
		}
	}
}

// The garbage beside block pools has room of its own, and a small heap is left as it is.
func TestGarbagePercent(t *testing.T) {
	for live, want := range map[uint64]int{0: 100, 4 << 20: 100, garbageRoom: 100, 2 * garbageRoom: 50, 4 * garbageRoom: 25, 1 << 40: 20} {
		if got := garbagePercent(live); got != want {
			t.Errorf("%d bytes: %d, want %d", live, got, want)
		}
	}
}
