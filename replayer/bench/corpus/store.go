package corpus

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/zeebo/xxh3"
)

// Store is a folder of cache files, each named by what it was made from.
type Store struct {
	Dir string
	// Available says how many bytes of memory there are, false when nobody knows.
	Available func() (int64, bool)
	// Say is told of what takes long; nil is silent.
	Say func(string)
}

// ErrNoRoom is a corpus that this machine has not the memory for.
var ErrNoRoom = errors.New("not enough memory")

func (s Store) say(format string, args ...any) {
	if s.Say != nil {
		s.Say(fmt.Sprintf(format, args...))
	}
}

// Make returns the path of the corpus of rows and parameters, building it unless it is there already.
func (s Store) Make(rows Rows, p Params) (string, error) {
	path := filepath.Join(s.Dir, fmt.Sprintf("trace-%016x.corpus", key(rows, p)))
	if s.usable(path) {
		return path, nil
	}
	size, building := p.Size(rows)
	if have, ok := s.available(); ok && building > have {
		return "", fmt.Errorf("%w: a corpus of at most %.1f GB takes %.1f GB to make, %.1f GB are available", ErrNoRoom, gb(size), gb(building), gb(have))
	}
	s.say("making the corpus of %d rows of %s, at most %.2f GB", len(rows.Rows), rows.Name, gb(size))
	// Arrays of gigabytes live while jobs come and go: the usual pace would let as much garbage pile up.
	defer debug.SetGCPercent(debug.SetGCPercent(buildGC))
	c, err := Build(rows, p)
	if err != nil {
		return "", err
	}
	err = s.save(c, path)
	debug.FreeOSMemory() // the trials want it
	return path, err
}

// Import returns the path of the cache file of a corpus in the public format.
func (s Store) Import(public string) (string, error) {
	f, err := os.Open(public)
	if err != nil {
		return "", fmt.Errorf("opening a public corpus: %w", err)
	}
	defer f.Close()
	sum := xxh3.New()
	n, err := io.Copy(sum, f)
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", public, err)
	}
	path := filepath.Join(s.Dir, fmt.Sprintf("public-%016x.corpus", sum.Sum64()))
	if s.usable(path) {
		return path, nil
	}
	// Arrays that grow are copied, and the sets that count what is resident are as large again.
	if have, ok := s.available(); ok && 3*n > have {
		return "", fmt.Errorf("%w: reading %s of %.1f GB takes up to %.1f GB, %.1f GB are available", ErrNoRoom, public, gb(n), gb(3*n), gb(have))
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return "", fmt.Errorf("reading %s: %w", public, err)
	}
	s.say("reading %s, %.2f GB", public, gb(n))
	c, err := ReadSMG(f, math.MaxInt64)
	if err != nil {
		return "", fmt.Errorf("%s: %w", public, err)
	}
	return path, s.save(c, path)
}

// usable says whether a cache file is there and whole. One that is not is made again.
func (s Store) usable(path string) bool {
	c, err := Open(path)
	if err != nil {
		return false
	}
	return c.Close() == nil
}

func (s Store) save(c *Corpus, path string) error {
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return fmt.Errorf("making the folder of corpora: %w", err)
	}
	return c.Save(path)
}

func (s Store) available() (int64, bool) {
	if s.Available == nil {
		return 0, false
	}
	return s.Available()
}

func gb(bytes int64) float64 { return float64(bytes) / 1e9 }

// key names a corpus by everything that decides its bytes: rows, parameters and the version of the file.
func key(rows Rows, p Params) uint64 {
	sum := xxh3.New()
	b := fmt.Appendf(nil, "%s %s %+v %d", fileMagic, rows.Name, p, windowNs)
	for i := range rows.Rows {
		row := &rows.Rows[i]
		for _, n := range []int64{row.StampNs, int64(row.Output), int64(len(row.IDs))} {
			b = binary.LittleEndian.AppendUint64(b, uint64(n))
		}
		for _, id := range row.IDs {
			b = binary.LittleEndian.AppendUint64(b, id)
		}
		_, _ = sum.Write(b) // a hash takes everything
		b = b[:0]
	}
	return sum.Sum64()
}
