package load

import (
	"cmp"
	"slices"
	"sync"
)

// maxGaps bounds the gaps kept of one request; the longest gap stays exact beyond it.
const maxGaps = 4096

// flight is the record of a request while it may still change.
type flight struct {
	mu  sync.Mutex // guards rec: the request's goroutine writes, samplers read
	rec Record

	lastTokenNs int64 // of the request's goroutine alone: where the current gap began
}

// update changes the record under its lock.
func (f *flight) update(change func(*Record)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.rec)
}

// copy is the record as it stands. GapsNs is shared with the writer, who only ever appends behind the
// length seen here.
func (f *flight) copy() Record {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.rec
	r.GapsNs = r.GapsNs[:len(r.GapsNs):len(r.GapsNs)]
	return r
}

// book is every record of a run. Lock order: book.mu, then flight.mu.
type book struct {
	mu      sync.Mutex
	all     []*flight
	settled []*flight        // in the order they settled
	open    map[*flight]bool // the rest
}

// add opens a record, numbers it, and says how many are open with it.
func (b *book) add(rec Record) (f *flight, open int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open == nil {
		b.open = map[*flight]bool{}
	}
	rec.N = len(b.all)
	f = &flight{rec: rec}
	b.all = append(b.all, f)
	b.open[f] = true
	return f, len(b.open)
}

// settle says that f will not change any more. The last change comes before it, so a reader may see a
// finished record among the open ones once, and never an unfinished one among the settled.
func (b *book) settle(f *flight) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.open, f)
	b.settled = append(b.settled, f)
}

func (b *book) snapshot() []Record {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]Record, len(b.all))
	for i, f := range b.all {
		out[i] = f.copy()
	}
	return out
}

func (b *book) since(n int) ([]Record, int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fresh := b.settled[min(max(n, 0), len(b.settled)):]
	out := make([]Record, 0, len(fresh)+len(b.open))
	for _, f := range fresh {
		out = append(out, f.copy())
	}
	for f := range b.open {
		out = append(out, f.copy())
	}
	slices.SortFunc(out[len(fresh):], func(a, b Record) int { return cmp.Compare(a.N, b.N) })
	return out, len(b.settled)
}
