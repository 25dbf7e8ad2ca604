package index

// Usage is what an index says of itself. Bytes are what it took from the heap; of those, FreeBytes are kept
// to be used again.
type Usage struct {
	// Runs are the pieces that chains are stored in, Blocks the chain positions in them.
	Runs, Blocks     int64
	Bytes, FreeBytes int64
}

// Accountant is an Index that can say what it is made of. Both methods are for measurements: they may take
// locks that a lookup never takes.
type Accountant interface {
	Index
	// Usage counts the whole index.
	Usage() Usage
	// Walked is the number of runs that a lookup of chain reads.
	Walked(chain []uint64) int
}
