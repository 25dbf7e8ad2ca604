package chain

import (
	"syscall"
	"unsafe"
)

const (
	hugePage = 2 << 20 // bytes; where they are larger, the advice says too little and does no harm
	// Smaller arrays, in bytes, are not most of any index. Larger ones cost more than they gain while they grow:
	// the kernel clears every new huge page, and on a virtual machine the host may have to, too.
	leastHuge, mostHuge = 64 << 10, 8 << 20
	// adviseHuge is MADV_HUGEPAGE of madvise(2).
	adviseHuge = 14
)

// huge asks for huge pages under n bytes at p. Names and blocks are read at random, so that
// with pages of 4 KiB nearly every read misses the TLB, too. The range is widened to whole huge pages: what
// else lies there is heap of ours as well, and the advice changes nothing but speed. Where the kernel takes
// no advice nothing happens.
func huge(p unsafe.Pointer, n uintptr) {
	if n < leastHuge || n > mostHuge {
		return
	}
	first := uintptr(p) &^ (hugePage - 1)
	end := (uintptr(p) + n + hugePage - 1) &^ (hugePage - 1)
	_, _, _ = syscall.RawSyscall(syscall.SYS_MADVISE, first, end-first, adviseHuge)
}
