package radix

import (
	"slices"

	"fleetdrill/mockworker/blockhash"
	"fleetdrill/mockworker/engine"
)

// journal is the events of one step. As SGLang's recorder it makes one event of neighbours that continue
// each other: a store that hangs on the last page of the store before it, and removals in a row.
type journal struct {
	pageSize int
	events   []engine.Event
	// gone is what the removals name.
	gone []blockhash.Digest
	// handedOut says that events went out with the last step and may be overwritten. A clear that found no
	// step to travel with stays.
	handedOut bool
}

// begin starts a new list of events unless the present one has not been handed out.
func (j *journal) begin() {
	if j.handedOut {
		j.drop()
	}
}

// drop forgets what was not handed out, too.
func (j *journal) drop() { j.events, j.gone, j.handedOut = j.events[:0], j.gone[:0], false }

func (j *journal) cleared() {
	j.begin()
	j.events = append(j.events, engine.Event{Kind: engine.Cleared, Group: engine.NoGroup})
}

// stored tells pages from..to of a request. No adapter is named: SGLang's events have no field for it.
func (j *journal) stored(q *request, from, to int) {
	end := to * j.pageSize
	if q.bigram {
		end++ // the other half of the last pair
	}
	ev := engine.Event{
		Kind: engine.Stored, Hashes: q.hashes[from:to:to], Tokens: q.tokens[from*j.pageSize : end : end], Bigram: q.bigram,
		BlockSize: j.pageSize, Group: engine.NoGroup, Medium: engine.MediumGPU, CacheSalt: q.salt,
	}
	if from > 0 {
		ev.Parent = &q.hashes[from-1]
	}
	if tail := j.tail(engine.Stored); tail != nil && ev.Parent != nil && tail.CacheSalt == ev.CacheSalt &&
		tail.Hashes[len(tail.Hashes)-1] == *ev.Parent {
		// Both alias the memory of requests, so the longer event needs its own.
		tail.Tokens = slices.Concat(tail.Tokens[:len(tail.Hashes)*j.pageSize], ev.Tokens)
		tail.Hashes = slices.Concat(tail.Hashes, ev.Hashes)
		return
	}
	j.events = append(j.events, ev)
}

// removed tells a node's pages.
func (j *journal) removed(n *node) {
	from := len(j.gone)
	tail := j.tail(engine.Removed)
	if tail != nil {
		from -= len(tail.Hashes) // they end gone
	}
	for i := range n.pages {
		j.gone = append(j.gone, n.pages[i].hash)
	}
	hashes := j.gone[from:len(j.gone):len(j.gone)]
	if tail != nil {
		tail.Hashes = hashes
		return
	}
	j.events = append(j.events, engine.Event{
		Kind: engine.Removed, Hashes: hashes, Group: engine.NoGroup, Medium: engine.MediumGPU,
	})
}

// tail is the last event if it is of this kind.
func (j *journal) tail(kind engine.EventKind) *engine.Event {
	if last := len(j.events) - 1; last >= 0 && j.events[last].Kind == kind {
		return &j.events[last]
	}
	return nil
}

var _ recorder = (*journal)(nil)
