package publish

import (
	"encoding/binary"
	"sort"

	"fleetdrill/internal/clock"
	"fleetdrill/internal/zsock"
)

// endSeq ends every replay: -1 as eight bytes.
var endSeq = []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

var empty = []byte{}

// listen hands requests to the publisher goroutine, which alone may read the buffer.
func (p *Publisher) listen(r *zsock.Router) {
	for {
		q, err := r.Recv(p.ctx)
		if err != nil {
			return // closed, by a restart or for good
		}
		if _, ok := parseReplay(q.Frames); !ok {
			// As the engine: a warning and no reply, so a client that got it wrong waits for ever.
			p.malformed.Add(1)
			p.o.Log.Warn("replay request refused: it must be an empty frame and a sequence number of 8 bytes",
				"rank", p.o.Rank, "frames", len(q.Frames))
			continue
		}
		select {
		case p.asked <- q:
		case <-p.ctx.Done():
			return
		}
	}
}

// parseReplay reads the frames behind the identity: exactly an empty one and 8 bytes, big-endian.
func parseReplay(frames [][]byte) (start uint64, ok bool) {
	if len(frames) != 2 || len(frames[0]) != 0 || len(frames[1]) != 8 {
		return 0, false
	}
	return binary.BigEndian.Uint64(frames[1]), true
}

// serve answers with every buffered batch from the asked one on, then the end marker. A start that left the
// buffer is no error: the reply begins later.
func (p *Publisher) serve(q *zsock.Request) {
	start, ok := parseReplay(q.Frames)
	if !ok {
		return
	}
	fate := p.o.Faults.Replay(clock.MonoNs(), p.o.Rank, start)
	if fate.Hang {
		return
	}
	p.requests.Add(1)
	first := sort.Search(p.buffer.Len(), func(i int) bool {
		return binary.BigEndian.Uint64(p.buffer.At(i).seq) >= start
	})
	end := p.buffer.Len()
	if fate.Cut {
		end = min(end, first+fate.After)
	}
	if err := p.replay(q, first, end, !fate.NoEnd); err != nil { // the peer is gone, and its other requests with it
		p.o.Log.Debug("replay broke off", "rank", p.o.Rank, "start", start, "err", err)
	}
}

// replay sends the buffer's batches from place first up to end, and the end marker.
func (p *Publisher) replay(q *zsock.Request, first, end int, marker bool) error {
	for i := first; i < end; i++ {
		b := p.buffer.At(i)
		p.replayed.Add(1) // before the peer can have it
		if err := p.reply(q, p.topic, b.seq, b.payload); err != nil {
			return err
		}
	}
	if !marker {
		return nil
	}
	return p.reply(q, empty, endSeq, empty)
}

func (p *Publisher) reply(q *zsock.Request, topic, seq, payload []byte) error {
	if p.o.Encoder.ReplayHasTopic() {
		return q.Reply(empty, topic, seq, payload)
	}
	return q.Reply(empty, seq, payload)
}
