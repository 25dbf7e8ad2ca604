package corpus

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"unsafe"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"
)

// The cache file, all of it little-endian:
//
//	8 bytes   "FDCORP01"
//	u64       checksum: xxh3-64 of everything behind it
//	u64       length of the header that follows, a multiple of 8
//	...       header: a Header in JSON, padded with spaces
//	5 x u64   number of operations, queries, engine hashes, content hashes, removals
//	...       the operations, 56 bytes each as Op has them, then the four arrays of u64
//
// Every part begins at a multiple of 8, so that a mapped file is the arrays.
const (
	fileMagic  = "FDCORP01"
	prefixSize = 24
	// maxHeader bounds the header, in bytes: a trace's name and twenty numbers.
	maxHeader = 64 << 10
	sections  = 5
)

// Save writes the cache file, whole or not at all.
func (c *Corpus) Save(path string) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".corpus-*")
	if err != nil {
		return fmt.Errorf("writing the corpus: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
			err = fmt.Errorf("writing the corpus to %s: %w", path, err)
		}
	}()
	if err = errors.Join(c.write(f), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

func (c *Corpus) write(f *os.File) error {
	header, err := json.Marshal(c.Header)
	if err != nil {
		return err
	}
	for len(header)%8 != 0 {
		header = append(header, ' ')
	}
	sum := xxh3.New()
	out := &summed{bufio.NewWriterSize(f, 1<<20), sum}
	if _, err := out.w.Write(make([]byte, 16)); err != nil { // magic and checksum come last
		return err
	}
	counts := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	counts = append(counts, header...)
	for _, n := range []int{len(c.Ops), len(c.Queries), len(c.Hashes), len(c.Contents), len(c.Removals)} {
		counts = binary.LittleEndian.AppendUint64(counts, uint64(n))
	}
	for _, part := range [][]byte{counts, bytesOf(c.Ops), bytesOf(c.Queries), bytesOf(c.Hashes), bytesOf(c.Contents), bytesOf(c.Removals)} {
		if err := out.write(part); err != nil {
			return err
		}
	}
	if err := out.w.Flush(); err != nil {
		return err
	}
	_, err = f.WriteAt(binary.LittleEndian.AppendUint64([]byte(fileMagic), sum.Sum64()), 0)
	return err
}

// summed writes and sums up.
type summed struct {
	w   *bufio.Writer
	sum hash.Hash
}

func (s *summed) write(b []byte) error {
	_, _ = s.sum.Write(b) // a hash takes everything
	_, err := s.w.Write(b)
	return err
}

// bytesOf is the memory of a slice without pointers.
func bytesOf[T Op | uint64](s []T) []byte {
	if len(s) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), len(s)*int(unsafe.Sizeof(s[0])))
}

// Open maps a cache file into memory and checks it, which reads all of it. The caller closes the corpus.
func Open(path string) (*Corpus, error) {
	c, err := open(path)
	if err != nil {
		return nil, fmt.Errorf("opening corpus %s: %w", path, err)
	}
	return c, nil
}

func open(path string) (*Corpus, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() < prefixSize || int64(int(info.Size())) != info.Size() {
		return nil, fmt.Errorf("%d bytes are no corpus", info.Size())
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("mapping it: %w", err)
	}
	c, err := parse(data)
	if err != nil {
		_ = unix.Munmap(data)
		return nil, err
	}
	c.unmap = func() error { return unix.Munmap(data) }
	return c, nil
}

// ErrForeign is a file that is no cache file of this version.
var ErrForeign = errors.New("not a corpus file of this version; remove it and it is made again")

// parse reads a cache file in memory, which must begin at a multiple of 8. The corpus points into it.
func parse(data []byte) (*Corpus, error) {
	if !littleEndian() {
		return nil, errors.New("corpus files are for little-endian machines")
	}
	if len(data) < prefixSize || string(data[:8]) != fileMagic {
		return nil, ErrForeign
	}
	if xxh3.Hash(data[16:]) != binary.LittleEndian.Uint64(data[8:]) {
		return nil, errors.New("its checksum is wrong; remove it and it is made again")
	}
	size := binary.LittleEndian.Uint64(data[16:])
	rest := data[prefixSize:]
	if size%8 != 0 || size > maxHeader || size+8*sections > uint64(len(rest)) {
		return nil, fmt.Errorf("a header of %d bytes does not fit", size)
	}
	c := &Corpus{}
	if err := json.Unmarshal(rest[:size], &c.Header); err != nil {
		return nil, fmt.Errorf("reading its header: %w", err)
	}
	counts, body := rest[size:size+8*sections], rest[size+8*sections:]
	widths := [sections]uint64{opBytes, 8, 8, 8, 8}
	var parts [sections][]byte
	for i, width := range widths {
		n := binary.LittleEndian.Uint64(counts[8*i:])
		if n > uint64(len(body))/width {
			return nil, fmt.Errorf("section %d of %d items does not fit", i, n)
		}
		parts[i], body = body[:n*width], body[n*width:]
	}
	if len(body) > 0 {
		return nil, fmt.Errorf("%d bytes follow its end", len(body))
	}
	c.Ops, c.Queries = as[Op](parts[0]), as[uint64](parts[1])
	c.Hashes, c.Contents, c.Removals = as[uint64](parts[2]), as[uint64](parts[3]), as[uint64](parts[4])
	return c, c.Check()
}

// as is the items that a part of a file is, in place.
func as[T Op | uint64](b []byte) []T {
	if len(b) == 0 {
		return nil
	}
	var item T
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), len(b)/int(unsafe.Sizeof(item)))
}

func littleEndian() bool {
	n := uint16(1)
	return *(*byte)(unsafe.Pointer(&n)) == 1
}

var _ io.Closer = (*Corpus)(nil)

// An Op on disk is an Op in memory.
var _ [opBytes]byte = [unsafe.Sizeof(Op{})]byte{}
