package trace

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// maxWindow bounds what a zstd file may ask for, in bytes: the window of `zstd --long`, the most that its
// command line uses without being told to.
const maxWindow = 128 << 20

// Open opens a trace file; a name that ends in .gz or .zst is decompressed on the way.
func Open(path string, o Options) (*Reader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening a trace: %w", err)
	}
	src, stop, err := decompress(f, path)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("opening trace %s: %w", path, err)
	}
	r := NewReader(src, path, o)
	r.close = func() error {
		stop()
		return f.Close()
	}
	return r, nil
}

// decompress is what f holds, by the suffix of its name. stop frees what that took; f stays open.
func decompress(f io.Reader, name string) (src io.Reader, stop func(), err error) {
	stop = func() {}
	switch {
	case strings.HasSuffix(name, ".gz"):
		z, err := gzip.NewReader(f)
		if errors.Is(err, io.EOF) {
			return eof{}, stop, nil // an empty file is an empty trace
		}
		return z, stop, err
	case strings.HasSuffix(name, ".zst"):
		// One decoder of concurrency 1 works in the caller's goroutine.
		z, err := zstd.NewReader(f, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, stop, err
		}
		return z, z.Close, nil
	}
	return f, stop, nil
}

// Create makes a trace file, compressed when its name ends in .gz or .zst. Closing it writes the rest.
func Create(path string) (io.WriteCloser, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("creating a trace: %w", err)
	}
	w, err := compress(f, path)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("creating trace %s: %w", path, err)
	}
	return w, nil
}

// compress is a writer into f by the suffix of its name; f is closed with it.
func compress(f io.WriteCloser, name string) (io.WriteCloser, error) {
	switch {
	case strings.HasSuffix(name, ".gz"):
		// Traces are written once and read often; the built-in one is part of the binary.
		z, err := gzip.NewWriterLevel(f, gzip.BestCompression)
		return &stacked{z, f}, err
	case strings.HasSuffix(name, ".zst"):
		z, err := zstd.NewWriter(f, zstd.WithEncoderConcurrency(1))
		return &stacked{z, f}, err
	}
	return f, nil
}

// stacked is a compressor over the file it writes to.
type stacked struct {
	io.WriteCloser
	file io.Closer
}

// Close ends the compressed stream, then the file.
func (s *stacked) Close() error { return errors.Join(s.WriteCloser.Close(), s.file.Close()) }
