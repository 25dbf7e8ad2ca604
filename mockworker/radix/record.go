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
	ev := engine.Event{
		Kind: engine.Stored, Hashes: q.hashes[from:to:to], Tokens: q.text(from, to, j.pageSize), Bigram: q.bigram,
		BlockSize: j.pageSize, Group: engine.NoGroup, Medium: engine.MediumGPU, CacheSalt: q.salt,
	}
	if from > 0 {
		ev.Parent = &q.hashes[from-1]
	}
	j.store(ev)
}

// copied tells the pages of a node in another tier.
func (j *journal) copied(n *node, medium string) {
	ev := engine.Event{
		Kind: engine.Stored, Tokens: n.text, Bigram: n.bigram,
		BlockSize: j.pageSize, Group: engine.NoGroup, Medium: medium, CacheSalt: n.salt,
	}
	for i := range n.pages {
		ev.Hashes = append(ev.Hashes, n.pages[i].hash)
	}
	if !n.parent.isRoot() {
		before := n.parent.pages[len(n.parent.pages)-1].hash
		ev.Parent = &before
	}
	j.store(ev)
}

func (j *journal) store(ev engine.Event) {
	if tail := j.tail(engine.Stored, ev.Medium); tail != nil && ev.Parent != nil && tail.CacheSalt == ev.CacheSalt &&
		tail.Hashes[len(tail.Hashes)-1] == *ev.Parent {
		// Both alias memory that is not the journal's, so the longer event needs its own.
		tail.Tokens = slices.Concat(tail.Tokens[:len(tail.Hashes)*j.pageSize], ev.Tokens)
		tail.Hashes = slices.Concat(tail.Hashes, ev.Hashes)
		return
	}
	j.events = append(j.events, ev)
}

// removed tells a node's pages.
func (j *journal) removed(n *node, medium string) {
	from := len(j.gone)
	tail := j.tail(engine.Removed, medium)
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
	j.events = append(j.events, engine.Event{Kind: engine.Removed, Hashes: hashes, Group: engine.NoGroup, Medium: medium})
}

// tail is the last event if it is of this kind and medium.
func (j *journal) tail(kind engine.EventKind, medium string) *engine.Event {
	if last := len(j.events) - 1; last >= 0 && j.events[last].Kind == kind && j.events[last].Medium == medium {
		return &j.events[last]
	}
	return nil
}

var _ recorder = (*journal)(nil)
