package publish

import (
	"encoding/binary"
	"iter"

	"fleetdrill/internal/contract"
	"fleetdrill/mockworker/faults"
	"fleetdrill/mockworker/twist"
)

// message is one batch as it goes to the subscribers.
type message struct {
	n                   int64 // its sequence number, whatever the frame says
	topic, seq, payload []byte
	twice               bool // it is sent again
}

// wrongTopic is what stands in place of the topic of a batch whose topic is corrupt.
const wrongTopic = "corrupt"

// sendTwisted gives a batch its sequence number and lets it go, as the faults have it. What they do to the
// payload is done for good: the fold and the replay buffer get the same bytes. What they do to the other
// frames, to the order or to the number of messages is done to the live stream alone, as a transport would.
func (p *Publisher) sendTwisted(now int64, payload []byte) {
	n := p.seq.Load()
	m := message{n: n, topic: p.topic, payload: payload}
	var swap *faults.Twist
	for _, t := range p.o.Faults.Twists(now, p.o.Rank) {
		if t.Kind == contract.FaultReorder {
			swap = &t // it has acted when the order has changed, not before
		} else if m.twist(&t, p.buffered) {
			p.o.Faults.Twisted(now, t, n)
		}
	}
	seq := p.announce(now, m.payload)
	if m.seq == nil {
		m.seq = seq
	}
	if swap != nil && p.overtaken == nil {
		held := m // a copy, so that no other batch costs an allocation
		p.overtaken = &held
		return
	}
	if p.overtaken != nil && swap != nil {
		p.o.Faults.Twisted(now, *swap, n) // before anybody can see the order
	}
	p.transmit(&m)
	p.letOvertakenGo()
}

// transmit hands a message to everybody who listens.
func (p *Publisher) transmit(m *message) {
	p.deliver(m)
	if m.twice {
		p.deliver(m)
	}
}

// letOvertakenGo sends the batch that waits to be overtaken, if there is one.
func (p *Publisher) letOvertakenGo() {
	if m := p.overtaken; m != nil {
		p.overtaken = nil
		p.transmit(m)
	}
}

// settleOvertaken lets it go when nothing will overtake it any more.
func (p *Publisher) settleOvertaken(now int64) {
	if p.overtaken != nil && !p.o.Faults.Reorders(now, p.o.Rank) {
		p.letOvertakenGo()
	}
}

// twist does one thing to a message and says whether there was anything to do it to.
func (m *message) twist(t *faults.Twist, past iter.Seq[[]byte]) bool {
	switch {
	case t.Kind == contract.FaultDuplicate && t.Of == faults.OfBatch:
		m.twice = true
		return true
	case t.Kind == contract.FaultCorrupt && t.Field == faults.FieldTopic:
		m.topic = []byte(wrongTopic)
		return true
	case t.Kind == contract.FaultCorrupt && t.Field == faults.FieldSeq:
		m.seq = []byte{0xff} // one byte, where eight make a number
		return true
	case t.Kind == contract.FaultTruncate:
		m.payload = twist.Truncate(m.payload)
		return true
	}
	return m.twistPayload(t, past)
}

// buffered yields the payloads of the replay buffer, newest first.
func (p *Publisher) buffered(yield func([]byte) bool) {
	for i := p.buffer.Len() - 1; i >= 0; i-- {
		if !yield(p.buffer.At(i).payload) {
			return
		}
	}
}

// twistPayload does what needs the batch read.
func (m *message) twistPayload(t *faults.Twist, past iter.Seq[[]byte]) bool {
	b, err := twist.Parse(m.payload)
	if err != nil {
		return false // another fault has made it unreadable
	}
	did := false
	switch t.Kind {
	case contract.FaultDuplicate:
		if t.Of == faults.OfHash {
			did = b.DuplicateHash()
		} else {
			did = b.DuplicateStore()
		}
	case contract.FaultUnknownEvent:
		did = b.UnknownEvent()
	case contract.FaultUnknownField:
		if t.In == faults.InBatch {
			did = b.UnknownElement()
		} else {
			did = b.UnknownField()
		}
	case contract.FaultUnknownParent:
		did = b.UnknownParent()
	case contract.FaultStaleStore:
		did = b.StaleStore(past)
	case contract.FaultMaskedStore:
		did = b.Mask(t.Mask == faults.MaskAll)
	case contract.FaultCorrupt:
		did = b.Corrupt(t.Field)
	}
	if did {
		m.payload = b.Bytes()
	}
	return did
}

// unmuted is the payload as it goes out while stores or removals are muted, nil when nothing is left of it.
func (p *Publisher) unmuted(now int64, payload []byte) []byte {
	mutes := p.o.Faults.Mutes(now, p.o.Rank)
	if len(mutes) == 0 {
		return payload
	}
	b, err := twist.Parse(payload)
	if err != nil {
		return payload // cannot be: it comes from our encoder
	}
	blocks := 0
	for _, m := range mutes {
		n := 0
		if m.Removals {
			n = b.DropRemovals(m.Takes)
		} else {
			n = b.DropStores(m.Takes)
		}
		p.o.Faults.Muted(now, m, p.seq.Load(), n)
		blocks += n
	}
	switch {
	case blocks == 0:
		return payload
	case b.Empty():
		return nil
	}
	return b.Bytes()
}

// seqBytes is a sequence number as a frame.
func seqBytes(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }
