package enginegrpc

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "fleetdrill/internal/protos/smgcommon"
	"fleetdrill/mockworker/publish"
)

// SubscribeKvEvents streams the event batches of all ranks, each rank's under its publisher's numbers plus
// one. Headers are sent when the subscription stands: what is published from then on is in the stream.
//
// A start above 0 resumes behind that batch, or is refused with OUT_OF_RANGE when the publisher does not
// hold what came behind it. A start of 0 begins with everything when the publisher still holds
// everything, with the next batch otherwise.
func (s *Server) SubscribeKvEvents(r *pb.SubscribeKvEventsRequest, out grpc.ServerStreamingServer[pb.KvEventBatch]) error {
	start := r.GetStartSequenceNumber()
	if s.o.Ranks[0].Publisher == nil {
		return status.Error(codes.Unimplemented, `KV cache events not enabled: start the worker with --kv-events-config '{"enable_kv_cache_events": true}'`)
	}
	if start > 0 && len(s.o.Ranks) > 1 {
		return status.Errorf(codes.OutOfRange, "there are %d ranks and each has its own sequence numbers, so %d names no place: subscribe from 0", len(s.o.Ranks), start)
	}
	ctx, stop := context.WithCancel(out.Context())
	defer stop()
	defer context.AfterFunc(s.draining, stop)()
	feeds, err := s.join(ctx, start)
	defer s.leave(feeds)
	if err != nil {
		return err
	}
	if err := out.SendHeader(metadata.MD{}); err != nil {
		return err
	}
	return s.ended(feed(ctx, feeds, out), out.Context())
}

// ended is the status with which a subscription ends.
func (s *Server) ended(err error, call context.Context) error {
	switch {
	case errors.Is(err, publish.ErrRestarted):
		return status.Error(codes.DataLoss, "the publisher restarted: its sequence numbers start over")
	case errors.Is(err, publish.ErrClosed), s.draining.Err() != nil:
		return status.Error(codes.Unavailable, "the engine is shutting down")
	case call.Err() != nil:
		return status.FromContextError(call.Err()).Err()
	}
	return err
}

// stream is one rank's part of a subscription.
type stream struct {
	*publish.Follower
	converter
	log func(seq int64, err error)
}

// join follows every rank. What it returns must be left, with an error too.
func (s *Server) join(ctx context.Context, start uint64) (feeds []*stream, err error) {
	for rank := range s.o.Ranks {
		f, err := s.o.Ranks[rank].Publisher.Follow(ctx, 0)
		if err != nil {
			return feeds, s.ended(err, ctx)
		}
		st := &stream{Follower: f, converter: converter{rank: int32(rank), groups: &s.groups[rank]}, log: func(seq int64, err error) {
			s.o.Log.Warn("an event batch cannot be told over gRPC and is sent empty", "rank", rank, "seq", seq, "err", err)
		}}
		feeds = append(feeds, st)
		st.learn()
		if f.History, err = resume(start, f.Oldest, f.Next, f.History); err != nil {
			return feeds, err
		}
	}
	return feeds, nil
}

func (s *Server) leave(feeds []*stream) {
	for _, f := range feeds {
		f.Close()
		if n := f.Lost(); n > 0 {
			s.o.Log.Warn("a gRPC subscriber was too slow and missed event batches", "rank", f.rank, "batches", n)
		}
	}
}

// resume is what of a publisher's history a subscription from start begins with. oldest and next are the
// publisher's numbers, which are one below those in messages.
func resume(start uint64, oldest, next int64, history []publish.Followed) ([]publish.Followed, error) {
	switch {
	case start == 0 && oldest == 0:
		return history, nil
	case start == 0:
		return nil, nil
	case start > uint64(next):
		return nil, status.Errorf(codes.OutOfRange, "sequence number %d is ahead of the newest batch, %d: the publisher may have restarted; subscribe from 0", start, next)
	case start < uint64(oldest):
		return nil, status.Errorf(codes.OutOfRange, "sequence number %d is older than the history, which begins at %d: subscribe from 0", start, oldest+1)
	}
	for i, b := range history {
		if b.Seq >= int64(start) {
			return history[i:], nil
		}
	}
	return nil, nil
}

// learnFrom is how many batches of the history are looked through for the cache groups.
const learnFrom = 256

// learn looks for the rank's cache groups in what was published before anybody listened.
func (s *stream) learn() {
	for _, b := range s.History[max(0, len(s.History)-learnFrom):] {
		if b, err := decode(b.Payload); err == nil {
			s.groups.learn(&b)
		}
	}
}

// feed sends what all ranks publish until one ends.
func feed(ctx context.Context, feeds []*stream, out grpc.ServerStreamingServer[pb.KvEventBatch]) error {
	var mu sync.Mutex // guards out
	send := func(m *pb.KvEventBatch) error {
		mu.Lock()
		defer mu.Unlock()
		return out.Send(m)
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, f := range feeds {
		g.Go(func() error { return f.run(ctx, send) })
	}
	return g.Wait()
}

func (s *stream) run(ctx context.Context, send func(*pb.KvEventBatch) error) error {
	batches := s.History
	for {
		for _, b := range batches {
			m, err := s.message(b.Seq, b.Payload)
			if err != nil {
				s.log(b.Seq, err)
			}
			if err := send(m); err != nil {
				return err
			}
		}
		if s.History != nil {
			s.History, batches = nil, nil // it may be large
		}
		var err error
		if batches, err = s.Recv(ctx, batches); err != nil {
			return err
		}
	}
}
