package corpus

import (
	"errors"
	"fmt"
)

// Kind is what an operation does.
type Kind uint8

// The kinds, with the numbers that SMGMCK01 gives them.
const (
	Query   Kind = iota // look Length hashes of Queries up
	Stored              // store Length blocks of Hashes and Contents
	Removed             // remove Length hashes of Removals
	Cleared             // remove all
	kinds
)

// Op is one operation. Its layout is that of the cache file: fixed, without padding, little-endian.
type Op struct {
	// Deadline is when it is issued, in ns of the reference window.
	Deadline uint64
	// Parent is the engine hash of the block in front of the stored ones, if HasParent is 1.
	Parent uint64
	// Start is the first item in the array that Kind names.
	Start uint64
	// Event is the engine's number of an event, from 0 per worker.
	Event uint64
	// Length counts items.
	Length uint32
	// Worker and Rank are the holder; a query has the worker that the request was sent to.
	Worker, Rank uint32
	// Position is that of the first stored block in its chain, if HasPosition is 1.
	Position    uint32
	Kind        Kind
	HasParent   uint8
	HasPosition uint8
	_           [5]uint8
}

// opBytes is the size of an Op, in memory and on disk.
const opBytes = 56

// Totals count a corpus. A block op is one hash that is looked up, stored or removed.
type Totals struct {
	Requests      uint64 `json:"requests"`
	StoredEvents  uint64 `json:"stored_events"`
	RemovedEvents uint64 `json:"removed_events"`
	ClearedEvents uint64 `json:"cleared_events"`
	RequestBlocks uint64 `json:"request_blocks"`
	StoredBlocks  uint64 `json:"stored_blocks"`
	RemovedBlocks uint64 `json:"removed_blocks"`
}

// BlockOps is the number of hashes looked up, stored and removed.
func (t Totals) BlockOps() uint64 { return t.RequestBlocks + t.StoredBlocks + t.RemovedBlocks }

// count adds one operation.
func (t *Totals) count(op *Op) {
	n := uint64(op.Length)
	switch op.Kind {
	case Query:
		t.Requests++
		t.RequestBlocks += n
	case Stored:
		t.StoredEvents++
		t.StoredBlocks += n
	case Removed:
		t.RemovedEvents++
		t.RemovedBlocks += n
	case Cleared:
		t.ClearedEvents++
	}
}

// Header says what a corpus was made from.
type Header struct {
	Trace string `json:"trace"`
	// BlockSize is in tokens, WindowNs the reference window that deadlines lie in.
	BlockSize uint32 `json:"block_size"`
	WindowNs  uint64 `json:"window_ns"`
	// Duplication, LengthFactor and WorkerDuplication are the factors of the public format; ours makes no
	// use of the last, which is 1.
	Duplication       uint64 `json:"duplication"`
	LengthFactor      uint64 `json:"length_factor"`
	WorkerDuplication uint64 `json:"worker_duplication"`
	// Workers is the highest worker id + 1.
	Workers uint64 `json:"workers"`
	// Resident is the number of memberships that are left at the end.
	Resident uint64 `json:"resident"`
	// Refused are rows that no engine had room for: they are looked up and never stored.
	Refused uint64 `json:"refused"`
	Totals  Totals `json:"totals"`
}

// Corpus is the operations in the order they are issued in, and the words that they point to.
type Corpus struct {
	Header
	Ops      []Op
	Queries  []uint64 // content hashes
	Hashes   []uint64 // engine hashes of stored blocks
	Contents []uint64 // content hashes of the same blocks
	Removals []uint64 // engine hashes

	unmap func() error
}

// Close gives the mapped file back, if there is one. No slice of the corpus may be used afterwards.
func (c *Corpus) Close() error {
	if c.unmap == nil {
		return nil
	}
	unmap := c.unmap
	c.unmap = nil
	return unmap()
}

// Bytes is the memory of the arrays.
func (c *Corpus) Bytes() int64 {
	return int64(len(c.Ops))*opBytes + 8*int64(len(c.Queries)+len(c.Hashes)+len(c.Contents)+len(c.Removals))
}

const (
	// maxWorkers bounds worker ids: what the chain index takes.
	maxWorkers = 1 << 15
	// maxWindowNs is an hour: far above any trial, and deadlines stay exact when they are rescaled.
	maxWindowNs = 3_600_000_000_000
)

// Check says what no replay could use: an operation that points outside its array, deadlines out of order,
// totals that are not those of the operations.
func (c *Corpus) Check() error {
	switch {
	case len(c.Ops) == 0:
		return errors.New("it has no operation")
	case c.WindowNs == 0 || c.WindowNs > maxWindowNs:
		return fmt.Errorf("its window is %d ns: want 1 to %d", c.WindowNs, uint64(maxWindowNs))
	case c.Workers == 0 || c.Workers > maxWorkers:
		return fmt.Errorf("it has %d workers: want 1 to %d", c.Workers, maxWorkers)
	case len(c.Hashes) != len(c.Contents):
		return fmt.Errorf("%d engine hashes and %d content hashes are stored", len(c.Hashes), len(c.Contents))
	}
	var t Totals
	for i := range c.Ops {
		if err := c.checkOp(i); err != nil {
			return fmt.Errorf("operation %d of %d: %w", i, len(c.Ops), err)
		}
		t.count(&c.Ops[i])
	}
	if t != c.Totals {
		return fmt.Errorf("its operations count %+v, its header says %+v", t, c.Totals)
	}
	return nil
}

func (c *Corpus) checkOp(i int) error {
	op := &c.Ops[i]
	if op.Kind >= kinds || op.HasParent > 1 || op.HasPosition > 1 {
		return fmt.Errorf("kind %d with flags %d and %d is none", op.Kind, op.HasParent, op.HasPosition)
	}
	if n := uint64(len(c.array(op.Kind))); op.Start > n || uint64(op.Length) > n-op.Start {
		return fmt.Errorf("%d items from %d on, of %d", op.Length, op.Start, n)
	}
	if uint64(op.Worker) >= c.Workers {
		return fmt.Errorf("worker %d of %d", op.Worker, c.Workers)
	}
	if op.Deadline > c.WindowNs {
		return fmt.Errorf("deadline %d ns is outside the window of %d ns", op.Deadline, c.WindowNs)
	}
	if i > 0 && before(op, &c.Ops[i-1]) {
		return errors.New("it belongs in front of the one before")
	}
	return nil
}

// before is the part of the issue order that is promised: by deadline, queries first, then by worker.
func before(a, b *Op) bool {
	switch {
	case a.Deadline != b.Deadline:
		return a.Deadline < b.Deadline
	case (a.Kind == Query) != (b.Kind == Query):
		return a.Kind == Query
	}
	return a.Worker < b.Worker
}

// array is where the items of a kind lie.
func (c *Corpus) array(k Kind) []uint64 {
	switch k {
	case Query:
		return c.Queries
	case Stored:
		return c.Hashes
	case Removed:
		return c.Removals
	}
	return nil
}

// Chain is the content hashes that a query asks for.
func (c *Corpus) Chain(op *Op) []uint64 { return c.Queries[op.Start : op.Start+uint64(op.Length)] }

// Blocks are the engine and content hashes of a store.
func (c *Corpus) Blocks(op *Op) (hashes, contents []uint64) {
	end := op.Start + uint64(op.Length)
	return c.Hashes[op.Start:end], c.Contents[op.Start:end]
}

// Gone are the engine hashes of a removal.
func (c *Corpus) Gone(op *Op) []uint64 { return c.Removals[op.Start : op.Start+uint64(op.Length)] }
