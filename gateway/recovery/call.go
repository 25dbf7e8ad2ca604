package recovery

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"time"

	"fleetdrill/internal/contract"
	"fleetdrill/internal/zsock"
)

const (
	// dialTimeout bounds connecting to a replay socket; a loopback or cluster dial takes under 10 ms.
	dialTimeout = time.Second
	// maxJitter spreads the calls of several gateways that saw the same gap. It is part of the 500 ms in
	// which a gap must be closed.
	maxJitter = 20 * time.Millisecond
)

// callStatus says what a reply of a replay call is.
type callStatus uint8

const (
	replyBatch callStatus = iota + 1
	replyEnd
	replyBad    // frames that are no reply
	replyFailed // the call could not be made, or broke
)

// call asks the engine's replay once and delivers what it answers, up to the end marker.
func (s *Subscription) call(ctx context.Context, a action) {
	defer s.wg.Done()
	if a.jitter {
		select {
		case <-time.After(rand.N(maxJitter)):
		case <-ctx.Done():
			return
		}
	}
	if err := s.converse(ctx, a); err != nil && ctx.Err() == nil {
		s.log.Debug("kv events: replay call", "from", a.from, "err", err)
		s.deliver(ctx, arrival{call: a.id, status: replyFailed})
	}
}

func (s *Subscription) converse(ctx context.Context, a action) (err error) {
	dealer, err := zsock.DialDealer(ctx, s.source.Replay, zsock.DealerOptions{DialTimeout: dialTimeout})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dealer.Close()) }()
	if err := dealer.Send(nil, binary.BigEndian.AppendUint64(nil, uint64(a.from))); err != nil {
		return err
	}
	for {
		frames, err := dealer.Recv(ctx)
		if err != nil {
			return err
		}
		r := parseReply(frames)
		r.call = a.id
		if !s.deliver(ctx, r) || r.status == replyEnd {
			return nil
		}
	}
}

// parseReply reads the frames of either shape: "", seq, payload, or "", topic, seq, payload. The end
// marker's sequence number is -1.
func parseReply(frames [][]byte) arrival {
	if n := len(frames); n != 3 && n != 4 || len(frames[0]) != 0 {
		return arrival{status: replyBad}
	}
	tail := frames[len(frames)-2:]
	if len(tail[0]) == 8 && binary.BigEndian.Uint64(tail[0]) == math.MaxUint64 && len(tail[1]) == 0 {
		return arrival{status: replyEnd}
	}
	m, ok := newMessage(tail[0], tail[1])
	if !ok {
		return arrival{status: replyBad}
	}
	return arrival{status: replyBatch, reply: m}
}

// takeReply gives the cursor what a replay call brought.
func (s *Subscription) takeReply(now int64, a arrival) {
	switch a.status {
	case replyBatch:
		s.cursor.replayed(now, a.call, a.reply)
	case replyEnd:
		s.cursor.replayEnd(now, a.call)
	case replyBad:
		s.apply.norm.Drop(contract.DropBadFrames)
	case replyFailed:
		s.cursor.replayFailed(now, a.call)
	}
}
