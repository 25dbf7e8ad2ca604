package corpus

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// SMGMCK01 is the public exchange format of prepared index corpora: the same file replays in other harnesses.
// All integers are little-endian; there is no checksum, so everything is checked that a replay relies on.
const (
	smgMagic   = "SMGMCK01"
	smgVersion = 1
	// maxTraceName bounds the trace's path, in bytes.
	maxTraceName = 64 << 10
	// readItems is how many items are taken at once: a count that lies costs no more memory than the file.
	readItems = 1 << 16
)

// WriteSMG writes the corpus in the public format.
func (c *Corpus) WriteSMG(w io.Writer) error {
	out := bufio.NewWriterSize(w, 1<<20)
	b := &words{}
	b.raw(smgMagic).u32(smgVersion).u32(c.BlockSize).u64(c.WindowNs).u64(c.Duplication).u64(c.LengthFactor).u64(c.WorkerDuplication).u64(c.Workers)
	t := c.Totals
	for _, n := range []uint64{t.Requests, t.StoredEvents, t.RemovedEvents, t.ClearedEvents, t.RequestBlocks, t.StoredBlocks, t.RemovedBlocks} {
		b.u64(n)
	}
	b.u64(uint64(len(c.Trace))).raw(c.Trace)
	b.u64(uint64(len(c.Queries))).flush(out)
	for _, h := range c.Queries {
		b.u64(h).flush(out)
	}
	b.u64(uint64(len(c.Hashes))).flush(out)
	for i, h := range c.Hashes {
		b.u64(h).u64(c.Contents[i]).flush(out)
	}
	b.u64(uint64(len(c.Removals))).flush(out)
	for _, h := range c.Removals {
		b.u64(h).flush(out)
	}
	b.u64(uint64(len(c.Ops))).flush(out)
	for i := range c.Ops {
		b.op(uint32(i), &c.Ops[i]).flush(out)
	}
	if err := out.Flush(); err != nil { // it remembers the first error of any write
		return fmt.Errorf("writing a %s file: %w", smgMagic, err)
	}
	return nil
}

// words gathers integers of one record.
type words struct{ b []byte }

func (w *words) raw(s string) *words { w.b = append(w.b, s...); return w }
func (w *words) u8(n uint8) *words   { w.b = append(w.b, n); return w }
func (w *words) u32(n uint32) *words { w.b = binary.LittleEndian.AppendUint32(w.b, n); return w }
func (w *words) u64(n uint64) *words { w.b = binary.LittleEndian.AppendUint64(w.b, n); return w }

func (w *words) flush(out *bufio.Writer) {
	_, _ = out.Write(w.b) // the last Flush reports it
	w.b = w.b[:0]
}

func (w *words) op(id uint32, op *Op) *words {
	w.u32(id).u64(op.Deadline).u64(uint64(op.Worker)).u8(uint8(op.Kind))
	switch op.Kind {
	case Query:
		return w.u64(op.Start).u32(op.Length)
	case Stored:
		w.u32(op.Rank).u64(op.Event).u8(op.HasParent).u64(op.Parent).u8(op.HasPosition).u32(op.Position)
		return w.u64(op.Start).u32(op.Length)
	case Removed:
		return w.u32(op.Rank).u64(op.Event).u64(op.Start).u32(op.Length)
	}
	return w.u32(op.Rank).u64(op.Event)
}

// ReadSMG reads a corpus in the public format and checks all that a replay relies on: dense ids, the issue
// order, ranges, totals, nothing behind the end. It takes no more memory than a small multiple of what it
// reads, and ends with an error when that is more than limit bytes.
func ReadSMG(r io.Reader, limit int64) (*Corpus, error) {
	c, err := readSMG(&reader{r: bufio.NewReaderSize(r, 1<<20), left: limit})
	if err != nil {
		return nil, fmt.Errorf("reading a %s file: %w", smgMagic, err)
	}
	return c, nil
}

func readSMG(r *reader) (*Corpus, error) {
	if magic := r.take(8); r.err == nil && string(magic) != smgMagic {
		return nil, fmt.Errorf("it begins with %q", magic)
	}
	if v := r.u32(); r.err == nil && v != smgVersion {
		return nil, fmt.Errorf("version %d is not known: want %d", v, smgVersion)
	}
	c := &Corpus{}
	c.BlockSize, c.WindowNs, c.Duplication, c.LengthFactor = r.u32(), r.u64(), r.u64(), r.u64()
	c.WorkerDuplication, c.Workers = r.u64(), r.u64()
	t := &c.Totals
	for _, n := range []*uint64{&t.Requests, &t.StoredEvents, &t.RemovedEvents, &t.ClearedEvents, &t.RequestBlocks, &t.StoredBlocks, &t.RemovedBlocks} {
		*n = r.u64()
	}
	n := r.u64()
	if r.err == nil && n > maxTraceName {
		return nil, fmt.Errorf("the trace's path has %d bytes: the bound is %d", n, maxTraceName)
	}
	c.Trace = string(r.take(int(n)))
	c.Queries = r.array()
	for pairs := r.u64(); pairs > 0 && r.err == nil; pairs-- {
		c.Hashes, c.Contents = append(c.Hashes, r.u64()), append(c.Contents, r.u64())
	}
	c.Removals = r.array()
	if err := readOps(r, c); err != nil {
		return nil, err
	}
	if r.err != nil {
		return nil, r.err
	}
	if _, err := r.r.ReadByte(); !errors.Is(err, io.EOF) {
		return nil, errors.New("bytes follow its end")
	}
	if err := c.Check(); err != nil {
		return nil, err
	}
	c.Resident = c.resident()
	return c, nil
}

func readOps(r *reader, c *Corpus) error {
	n := r.u64()
	if r.err == nil && n > math.MaxUint32 {
		return fmt.Errorf("%d operations: ids have 32 bits", n)
	}
	for i := uint64(0); i < n && r.err == nil; i++ {
		if id := r.u32(); r.err == nil && uint64(id) != i {
			return fmt.Errorf("operation %d has id %d: ids must be dense", i, id)
		}
		op, err := r.op()
		if err != nil {
			return fmt.Errorf("operation %d: %w", i, err)
		}
		c.Ops = append(c.Ops, op)
	}
	return nil
}

// reader takes integers until something goes wrong; then it gives zeros and keeps the error.
type reader struct {
	r    *bufio.Reader
	left int64
	buf  [8]byte
	long []byte
	err  error
}

func (r *reader) take(n int) []byte {
	if r.err == nil && int64(n) > r.left {
		r.err = errors.New("it is longer than this machine has room for")
	}
	if r.err != nil {
		return nil
	}
	r.left -= int64(n)
	b := r.buf[:]
	if n > len(b) {
		if n > cap(r.long) {
			r.long = make([]byte, n)
		}
		b = r.long[:n]
	}
	if _, r.err = io.ReadFull(r.r, b[:n]); r.err != nil {
		if errors.Is(r.err, io.EOF) || errors.Is(r.err, io.ErrUnexpectedEOF) {
			r.err = errors.New("it is cut short")
		}
		return nil
	}
	return b[:n]
}

func (r *reader) u8() uint8 {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) u32() uint32 {
	if b := r.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (r *reader) u64() uint64 {
	if b := r.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// array is a count and as many words.
func (r *reader) array() (out []uint64) {
	for n := r.u64(); n > 0 && r.err == nil; {
		part := min(n, readItems)
		for b := r.take(int(part) * 8); len(b) > 0; b = b[8:] {
			out = append(out, binary.LittleEndian.Uint64(b))
		}
		n -= part
	}
	return out
}

func (r *reader) op() (Op, error) {
	op := Op{Deadline: r.u64()}
	worker := r.u64()
	op.Kind = Kind(r.u8())
	switch op.Kind {
	case Query:
		op.Start, op.Length = r.u64(), r.u32()
	case Stored:
		op.Rank, op.Event, op.HasParent, op.Parent, op.HasPosition, op.Position = r.u32(), r.u64(), r.u8(), r.u64(), r.u8(), r.u32()
		op.Start, op.Length = r.u64(), r.u32()
	case Removed:
		op.Rank, op.Event = r.u32(), r.u64()
		op.Start, op.Length = r.u64(), r.u32()
	case Cleared:
		op.Rank, op.Event = r.u32(), r.u64()
	default:
		return op, fmt.Errorf("kind %d is not known", op.Kind)
	}
	if r.err != nil {
		return op, r.err
	}
	if worker >= maxWorkers {
		return op, fmt.Errorf("worker %d: the bound is %d", worker, maxWorkers)
	}
	op.Worker = uint32(worker)
	return op, nil
}

// resident replays the events into sets: how many memberships are left at the end.
func (c *Corpus) resident() uint64 {
	type holder struct{ worker, rank uint32 }
	held := map[holder]map[uint64]struct{}{}
	for i := range c.Ops {
		op := &c.Ops[i]
		set := held[holder{op.Worker, op.Rank}]
		switch op.Kind {
		case Stored:
			if set == nil {
				set = map[uint64]struct{}{}
				held[holder{op.Worker, op.Rank}] = set
			}
			hashes, _ := c.Blocks(op)
			for _, h := range hashes {
				set[h] = struct{}{}
			}
		case Removed:
			for _, h := range c.Gone(op) {
				delete(set, h)
			}
		case Cleared:
			clear(set)
		}
	}
	n := uint64(0)
	for _, set := range held {
		n += uint64(len(set))
	}
	return n
}
