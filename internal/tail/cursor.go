package tail

// memory is how many batches a cursor remembers: as many as a publisher keeps for replay by default.
const memory = 10_000

// verdict is what a sequence number says about a batch.
type verdict uint8

const (
	first     verdict = iota + 1 // of this incarnation
	expected                     // the next one
	gapped                       // some are missing before it
	late                         // one that was missing
	overlap                      // live what was replayed before
	duplicate                    // the same bytes again
	restarted                    // a known number with other bytes, or one from before the join
)

// mark is what is remembered of a batch.
type mark struct {
	hash uint64 // of the payload
	live bool   // it came live, not only by replay
}

// cursor is the place in one publisher's numbers. The zero value stands nowhere.
type cursor struct {
	placed bool
	next   uint64
	// low is the lowest number that can be remembered; what is below it was never seen or is forgotten.
	low  uint64
	seen map[uint64]mark
}

// judge says what a batch is, and changes nothing.
func (c *cursor) judge(seq, hash uint64, live bool) verdict {
	switch {
	case !c.placed:
		return first
	case seq == c.next:
		return expected
	case seq > c.next:
		return gapped
	case seq < c.low:
		return restarted
	}
	switch m, known := c.seen[seq]; {
	case !known:
		return late
	case m.hash != hash:
		return restarted
	case live && !m.live:
		return overlap
	}
	return duplicate
}

// accept moves behind a batch, or fills its hole.
func (c *cursor) accept(seq, hash uint64, live bool) {
	if !c.placed {
		*c = cursor{placed: true, next: seq, low: seq, seen: map[uint64]mark{}}
	}
	c.seen[seq] = mark{hash: hash, live: live}
	if seq < c.next {
		return
	}
	c.next = seq + 1
	if c.next > memory && c.next-memory > c.low {
		c.forget(c.next - memory)
	}
}

// forget drops everything below low. Numbers may jump by any amount, the marks are few.
func (c *cursor) forget(low uint64) {
	if low-c.low <= memory {
		for ; c.low < low; c.low++ {
			delete(c.seen, c.low)
		}
		return
	}
	for seq := range c.seen {
		if seq < low {
			delete(c.seen, seq)
		}
	}
	c.low = low
}
