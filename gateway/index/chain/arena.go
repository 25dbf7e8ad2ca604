package chain

import (
	"math/bits"
	"sync/atomic"
	"unsafe"
)

const (
	// chunkBits makes chunks of 2^16 words, 512 KiB: small enough for an index of a few blocks.
	chunkBits  = 16
	chunkWords = 1 << chunkBits
	// maxChunks keeps a ref within 32 bits: 2^32 words, 32 GiB.
	maxChunks = 1 << (32 - chunkBits)
	// sizeClasses covers every array below 2^32 words: 8 exact sizes, then 4 per octave.
	sizeClasses = 8 + 4*29
)

// arena hands out arrays of words. The garbage collector has nothing to scan in it: arrays name each other
// by word number (a ref), never by pointer. Only the writer allocates and frees; readers may look at an
// array after it was freed and used again, which is why every word is read and written atomically and
// why whoever read one checks a version afterwards.
type arena struct {
	// chunks only ever grows. An array larger than a chunk lies in a chunk of its own, that counts as many
	// as it is long.
	chunks atomic.Pointer[[][]uint64]
	// next and end bound the part of the last chunk that was never used.
	next, end uint32
	// free holds the first freed array per class; its first word is the ref of the next one.
	free [sizeClasses]uint32
	// freeWords are the words on the free lists; used those of arrays in use, which anyone may read.
	freeWords int64
	used      atomic.Int64
	// limit is how many chunks there may be: maxChunks but in tests.
	limit int
}

func newArena() *arena {
	a := &arena{limit: maxChunks}
	a.chunks.Store(&[][]uint64{})
	return a
}

// classOf is the size class of an array of n > 0 words, and its real size: at most a quarter more.
func classOf(n uint32) (class int, size uint32) {
	if n <= 8 {
		return int(n) - 1, n
	}
	shift := bits.Len32(n-1) - 3
	size = (n + 1<<shift - 1) >> shift << shift
	return 8 + (shift-1)*4 + int(size>>shift) - 5, size
}

// alloc returns an array of at least n words and its real size. Its words hold anything. Whoever starts an event
// has asked room for all that it may need.
func (a *arena) alloc(n uint32) (ref, size uint32) {
	class, size := classOf(n)
	a.used.Add(int64(size))
	if ref = a.free[class]; ref != 0 {
		a.free[class] = uint32(atomic.LoadUint64(&a.view(ref, 1)[0]))
		a.freeWords -= int64(size)
		return ref, size
	}
	if a.end-a.next < size {
		a.grow(size)
	}
	ref = a.next
	a.next += size
	return ref, size
}

// grow adds a chunk that has room for size words. What is left of the last one is lost: less than one
// array.
func (a *arena) grow(size uint32) {
	chunks := *a.chunks.Load()
	n := (size + chunkWords - 1) / chunkWords
	first := len(chunks)
	chunk := make([]uint64, n*chunkWords)
	huge(unsafe.Pointer(&chunk[0]), uintptr(n)*chunkWords*8)
	chunks = append(chunks, chunk)
	for range n - 1 {
		chunks = append(chunks, nil)
	}
	a.next = uint32(first) << chunkBits
	a.end = a.next + n*chunkWords
	if first == 0 {
		a.next++ // ref 0 means none
	}
	a.chunks.Store(&chunks)
}

// release puts an array of that real size on its free list.
func (a *arena) release(ref, size uint32) {
	class, _ := classOf(size)
	atomic.StoreUint64(&a.view(ref, 1)[0], uint64(a.free[class]))
	a.free[class] = ref
	a.freeWords += int64(size)
	a.used.Add(-int64(size))
}

// room reports that arrays of n words together can be allocated, whatever the free lists lack. The end of a
// chunk that an array does not fit in is lost, which is less than the array: so twice n are asked for.
func (a *arena) room(n int64) bool {
	return int64(a.limit-len(*a.chunks.Load()))*chunkWords+int64(a.end-a.next) >= 2*n+chunkWords
}

// view is the first n words of an array.
func (a *arena) view(ref, n uint32) []uint64 {
	chunk := (*a.chunks.Load())[ref>>chunkBits]
	at := ref & (chunkWords - 1)
	return chunk[at : at+n : at+n]
}

// word is the i-th word of an array.
func (a *arena) word(ref, i uint32) *uint64 {
	return &(*a.chunks.Load())[ref>>chunkBits][ref&(chunkWords-1)+i]
}

// words is how many words the chunks hold, and how many of them no array uses.
func (a *arena) words() (total, unused int64) {
	for _, c := range *a.chunks.Load() {
		total += int64(len(c))
	}
	return total, a.freeWords + int64(a.end-a.next)
}

// copyWords writes src to dst.
func copyWords(dst, src []uint64) {
	for i, w := range src {
		atomic.StoreUint64(&dst[i], w)
	}
}

// moveWords writes the words of another array to dst.
func moveWords(dst, src []uint64) {
	for i := range src {
		atomic.StoreUint64(&dst[i], atomic.LoadUint64(&src[i]))
	}
}

// zeroWords clears dst.
func zeroWords(dst []uint64) {
	for i := range dst {
		atomic.StoreUint64(&dst[i], 0)
	}
}
