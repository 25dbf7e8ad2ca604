package corpus

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"slices"

	"fleetdrill/internal/rng"
	"fleetdrill/internal/tokens"
	"fleetdrill/replayer/trace"
)

// Params say what Build makes. Equal parameters and rows give equal corpora.
type Params struct {
	// LengthFactor makes so many blocks of every block of the trace, Duplication so many copies of its rows
	// that share nothing with each other.
	LengthFactor, Duplication int
	// Workers are the engines; each row goes to one of them, drawn from Seed.
	Workers int
	Seed    uint64
	// BlockSize is in tokens and divides 512; PoolBlocks is the size of an engine's pool.
	BlockSize, PoolBlocks int
	// SpeedUp is how many times faster than its profile an engine computes.
	SpeedUp int
}

// DefaultParams are the published definition, at a duplication that small machines have room for.
func DefaultParams() Params {
	return Params{LengthFactor: 4, Duplication: 2, Workers: 128, Seed: 1, BlockSize: 128, PoolBlocks: 16_384, SpeedUp: 10}
}

// Check says which parameter is out of its bounds.
func (p Params) Check() error {
	switch {
	case p.LengthFactor < 1 || p.LengthFactor > 64:
		return fmt.Errorf("length factor %d: want 1 to 64", p.LengthFactor)
	case p.Duplication < 1 || p.Duplication > 1000:
		return fmt.Errorf("duplication %d: want 1 to 1000", p.Duplication)
	case p.Workers < 1 || p.Workers > 1024:
		return fmt.Errorf("%d workers: want 1 to 1024", p.Workers)
	case p.BlockSize < 1 || trace.BlockTokens%p.BlockSize != 0:
		return fmt.Errorf("block size %d: want a divisor of %d", p.BlockSize, trace.BlockTokens)
	case p.PoolBlocks < 16 || p.PoolBlocks > 1<<22:
		return fmt.Errorf("a pool of %d blocks: want 16 to %d", p.PoolBlocks, 1<<22)
	case p.SpeedUp < 1 || p.SpeedUp > 1000:
		return fmt.Errorf("speed-up %d: want 1 to 1000", p.SpeedUp)
	}
	return nil
}

// perID is how many blocks one block id of the trace becomes.
func (p Params) perID() int { return p.LengthFactor * trace.BlockTokens / p.BlockSize }

// windowNs is the reference window of a built corpus: 10 s, so that a rescaled deadline is exact to well
// below what any clock tells apart.
const windowNs = 10_000_000_000

// Rows are the rows of a trace, and what it calls itself.
type Rows struct {
	Name string
	Rows []trace.Row
}

// ReadRows reads a whole trace.
func ReadRows(r *trace.Reader) (Rows, error) {
	out := Rows{Name: r.Name()}
	for {
		var row trace.Row
		switch err := r.Next(&row); {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return Rows{}, fmt.Errorf("reading the trace of a corpus: %w", err)
		}
		out.Rows = append(out.Rows, row)
	}
}

// buildGC is how much garbage may pile up while a corpus is made, in percent of what is live.
const buildGC = 20

// Size bounds the memory of the corpus that Build would make of rows, and of making it, in bytes.
func (p Params) Size(rows Rows) (corpus, building int64) {
	var prompts, answers, ops int64
	for i := range rows.Rows {
		prompts += int64(len(rows.Rows[i].IDs) * p.perID())
		answers += int64(rows.Rows[i].Output / p.BlockSize)
		ops += 2 + 2*int64(rows.Rows[i].Output/p.BlockSize)
	}
	k := int64(p.Duplication)
	blocks := k * (prompts + answers)
	// Every block is looked up at most once, stored once with two hashes, and removed once.
	corpus = 8*k*prompts + 16*blocks + 8*blocks + k*ops*opBytes
	// Arrays are put in order one after the other; an engine at work needs about 100 bytes per block.
	live := corpus + 8*blocks + int64(p.PoolBlocks)*100
	return corpus, live + live*buildGC/100
}

// Build makes the corpus. Params.Size says what that takes.
func Build(rows Rows, p Params) (*Corpus, error) { return build(rows, p, nil) }

// build is Build; left, if not nil, is told the engine hashes that each worker's engine has in the end.
func build(rows Rows, p Params, left func(worker int, hashes []uint64)) (*Corpus, error) {
	if err := p.Check(); err != nil {
		return nil, fmt.Errorf("making a corpus: %w", err)
	}
	if len(rows.Rows) == 0 {
		return nil, errors.New("making a corpus: the trace has no row")
	}
	copies, err := newCopies(rows.Rows, p)
	if err != nil {
		return nil, err
	}
	b := builder{params: p, copies: copies, corpus: &Corpus{Header: Header{
		Trace: rows.Name, BlockSize: uint32(p.BlockSize), WindowNs: windowNs, Duplication: uint64(p.Duplication),
		LengthFactor: uint64(p.LengthFactor), WorkerDuplication: 1, Workers: uint64(p.Workers),
	}}}
	b.reserve(rows)
	for worker := range p.Workers {
		hashes := b.worker(uint32(worker), rows.Rows)
		if left != nil {
			left(worker, hashes)
		}
	}
	c := b.corpus
	c.arrange()
	for i := range c.Ops {
		c.Totals.count(&c.Ops[i])
	}
	return c, c.Check()
}

// copies says which rows go to which worker.
type copies struct {
	stride uint64 // ids of copy k are those of the trace + k*stride
	of     [][]assigned
}

type assigned struct{ row, copy int32 }

// newCopies draws a worker for every row of every copy.
func newCopies(rows []trace.Row, p Params) (copies, error) {
	c := copies{of: make([][]assigned, p.Workers)}
	for i := range rows {
		for _, id := range rows[i].IDs {
			c.stride = max(c.stride, id+1)
		}
	}
	// Blocks are numbered in 62 bits: answers have the numbers above.
	if hi, lo := bits.Mul64(c.stride, uint64(p.Duplication*p.perID())); hi > 0 || lo > 1<<62 {
		return c, fmt.Errorf("making a corpus: block ids up to %d are too large to be copied %d times", c.stride-1, p.Duplication)
	}
	draw := rng.Stream(p.Seed, "bench/workers")
	for k := range int32(p.Duplication) {
		for i := range rows {
			w := draw.IntN(p.Workers)
			c.of[w] = append(c.of[w], assigned{int32(i), k})
		}
	}
	return c, nil
}

// builder gathers the operations of one worker after the other.
type builder struct {
	params Params
	copies copies
	corpus *Corpus
}

// reserve makes the arrays as long as they can become. What is not used of them is never touched, and so
// takes no memory.
func (b *builder) reserve(rows Rows) {
	prompts, answers := 0, 0
	for i := range rows.Rows {
		prompts += len(rows.Rows[i].IDs) * b.params.perID() * b.params.Duplication
		answers += rows.Rows[i].Output / b.params.BlockSize * b.params.Duplication
	}
	c := b.corpus
	c.Queries = make([]uint64, 0, prompts)
	c.Hashes, c.Contents = make([]uint64, 0, prompts+answers), make([]uint64, 0, prompts+answers)
	c.Removals = make([]uint64, 0, prompts+answers)
}

// worker serves the rows of one worker, rescales its timeline to the window and returns what its engine has
// in the end.
func (b *builder) worker(worker uint32, rows []trace.Row) []uint64 {
	c, first := b.corpus, len(b.corpus.Ops)
	list := b.copies.of[worker]
	// In the order of arrival; rows of one instant in that of the trace, then of the copies.
	slices.SortStableFunc(list, func(x, y assigned) int {
		return cmp.Or(cmp.Compare(rows[x.row].StampNs, rows[y.row].StampNs), cmp.Compare(x.row, y.row))
	})
	var jobs []*job
	for _, a := range list {
		j := b.job(&rows[a.row], a)
		jobs = append(jobs, j)
		c.Ops = append(c.Ops, Op{Deadline: uint64(j.arrival), Start: uint64(len(c.Queries)), Length: uint32(j.prompt), Worker: worker, Kind: Query})
		c.Queries = append(c.Queries, j.contents...)
	}
	var events uint64
	e := newOffline(b.params.PoolBlocks, b.params.BlockSize, b.params.SpeedUp, func(ev event) {
		b.event(worker, events, ev)
		events++
	})
	e.serve(jobs)
	c.Resident += uint64(e.pool.Len())
	c.Refused += e.refused
	rescale(c.Ops[first:])
	return slices.Collect(e.pool.Hashes())
}

// job is the request of a row.
func (b *builder) job(row *trace.Row, a assigned) *job {
	per := b.params.perID()
	j := &job{arrival: row.StampNs, prompt: len(row.IDs) * per, output: row.Output, number: uint64(a.copy)<<32 | uint64(a.row)}
	answers := row.Output / b.params.BlockSize
	j.chain, j.contents = make([]uint64, 0, j.prompt+answers), make([]uint64, 0, j.prompt+answers)
	prefix := uint64(engineSeed)
	for _, id := range row.IDs {
		id += uint64(a.copy) * b.copies.stride
		for i := range uint64(per) {
			content := promptContent(id*uint64(per) + i)
			prefix = tokens.PrefixNext(prefix, content)
			j.chain, j.contents = append(j.chain, prefix), append(j.contents, content)
		}
	}
	return j
}

// engineSeed is the prefix hash in front of a chain's first block, which keeps engine hashes apart from
// content hashes.
const engineSeed = 1337

// promptContent is the content hash of the n-th block there is: any bijection onto words that look random
// will do, since nothing reads tokens here.
func promptContent(n uint64) uint64 { return tokens.DigestTerm(n + 1) }

// answerContent is that of the i-th full block of a request's answer, which nobody else has.
func answerContent(request uint64, i int) uint64 {
	return tokens.PrefixNext(tokens.DigestTerm(request|1<<63), uint64(i))
}

// event appends what an engine announced.
func (b *builder) event(worker uint32, number uint64, ev event) {
	c := b.corpus
	op := Op{Deadline: uint64(ev.at), Event: number, Length: uint32(len(ev.hashes)), Worker: worker, Kind: Removed, Start: uint64(len(c.Removals))}
	if ev.contents == nil {
		c.Removals = append(c.Removals, ev.hashes...)
	} else {
		op.Kind, op.Start, op.Parent = Stored, uint64(len(c.Hashes)), ev.parent
		op.Position, op.HasPosition = uint32(ev.position), 1
		if ev.hasParent {
			op.HasParent = 1
		}
		c.Hashes, c.Contents = append(c.Hashes, ev.hashes...), append(c.Contents, ev.contents...)
	}
	c.Ops = append(c.Ops, op)
}

// rescale moves the operations of a worker from trace time, where they lie anywhere, to the whole window.
func rescale(ops []Op) {
	from, to := uint64(math.MaxUint64), uint64(0)
	for i := range ops {
		from, to = min(from, ops[i].Deadline), max(to, ops[i].Deadline)
	}
	for i := range ops {
		if to == from {
			ops[i].Deadline = 0
			continue
		}
		hi, lo := bits.Mul64(ops[i].Deadline-from, windowNs)
		ops[i].Deadline, _ = bits.Div64(hi, lo, to-from)
	}
}

// arrange sorts the operations into the order they are issued in and every array into the order of its
// operations, so that a replay reads memory from one end to the other.
func (c *Corpus) arrange() {
	// Stable, and each worker's operations are queries and then events in their order: what is left equal
	// stays in the trace's order.
	slices.SortStableFunc(c.Ops, func(a, b Op) int {
		switch {
		case before(&a, &b):
			return -1
		case before(&b, &a):
			return 1
		}
		return 0
	})
	c.Queries = c.reorder(Query, c.Queries)
	c.Removals = c.reorder(Removed, c.Removals)
	contents := c.reorderKeeping(Stored, c.Contents)
	c.Hashes = c.reorder(Stored, c.Hashes)
	c.Contents = contents
}

// reorderKeeping copies the items of a kind into the order of its operations.
func (c *Corpus) reorderKeeping(kind Kind, from []uint64) []uint64 {
	out := make([]uint64, 0, len(from))
	for i := range c.Ops {
		if op := &c.Ops[i]; op.Kind == kind {
			out = append(out, from[op.Start:op.Start+uint64(op.Length)]...)
		}
	}
	return out
}

// reorder is reorderKeeping, after which the operations point into the copy.
func (c *Corpus) reorder(kind Kind, from []uint64) []uint64 {
	out := c.reorderKeeping(kind, from)
	at := uint64(0)
	for i := range c.Ops {
		if op := &c.Ops[i]; op.Kind == kind {
			op.Start = at
			at += uint64(op.Length)
		}
	}
	return out
}
