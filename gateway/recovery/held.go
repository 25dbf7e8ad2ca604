package recovery

import (
	"sort"

	"fleetdrill/gateway/events"
)

// Bounds on batches that wait for a replay to fill what is in front of them. A batch refused here is
// missing later and asked for again, so the bounds cost time, never a batch.
const (
	maxHeld      = 10_000   // an engine's replay buffer
	maxHeldBytes = 64 << 20 // about 10,000 batches of full prefill steps
)

// message is one batch as it arrived.
type message struct {
	seq     int64
	hash    uint64 // xxh3-64 of payload
	payload []byte
	// batch stands in for the payload where no wire lies between engine and gateway.
	batch *events.Batch
	// live batches came by subscription, others by replay.
	live bool
}

// clears says that the batch carries the engine's own clear.
func (m message) clears() bool {
	if m.batch != nil {
		return m.batch.Clears()
	}
	return events.HasClear(m.payload)
}

// held are batches above the cursor, by sequence number.
type held struct {
	list  []message
	bytes int
}

// find is the place of seq and whether it is there.
func (h *held) find(seq int64) (at int, there bool) {
	// Nearly every batch belongs at the end.
	if n := len(h.list); n == 0 || h.list[n-1].seq < seq {
		return n, false
	}
	at = sort.Search(len(h.list), func(i int) bool { return h.list[i].seq >= seq })
	return at, h.list[at].seq == seq
}

// has reports whether this very batch is here.
func (h *held) has(m message) bool {
	at, there := h.find(m.seq)
	return there && h.list[at].hash == m.hash
}

// put inserts m at the place that find gave, unless the bounds forbid it.
func (h *held) put(at int, m message) bool {
	if len(h.list) >= maxHeld || h.bytes+len(m.payload) > maxHeldBytes {
		return false
	}
	h.list = append(h.list, message{})
	copy(h.list[at+1:], h.list[at:])
	h.list[at] = m
	h.bytes += len(m.payload)
	return true
}

// head is the lowest batch, if there is one.
func (h *held) head() (message, bool) {
	if len(h.list) == 0 {
		return message{}, false
	}
	return h.list[0], true
}

// pop takes the head away.
func (h *held) pop() {
	h.bytes -= len(h.list[0].payload)
	h.list[0].payload, h.list[0].batch = nil, nil
	h.list = h.list[1:]
}

func (h *held) reset() { *h = held{} }
