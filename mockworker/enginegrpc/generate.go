package enginegrpc

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"fleetdrill/internal/protos/vllmengine"
	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/loop"
)

// Generate answers with a chunk per wake-up and a last message, or with the last message only. A client
// that goes away aborts the request in the engine.
func (s *Server) Generate(r *vllmengine.GenerateRequest, out grpc.ServerStreamingServer[vllmengine.GenerateResponse]) error {
	j, err := s.read(r)
	if err != nil {
		return err
	}
	s.received.Store(time.Now().UnixNano())
	streams := make([]*loop.Stream, j.choices)
	for i := range streams {
		req := j.req
		req.ID = j.nameOf(i)
		streams[i] = s.o.Ranks[j.rank].Loop.Submit(req, !j.stream)
	}
	s.open.add(j.id, streams)
	defer s.open.remove(j.id, streams)
	return s.answer(j, streams, out)
}

// answer sends what the streams say, interleaved as it comes. When one fails they all end.
func (s *Server) answer(j *job, streams []*loop.Stream, out grpc.ServerStreamingServer[vllmengine.GenerateResponse]) error {
	w := &writer{out: out}
	if len(streams) == 1 {
		return w.choice(out.Context(), j, streams[0], 0)
	}
	g, ctx := errgroup.WithContext(out.Context())
	for i, st := range streams {
		g.Go(func() error { return w.choice(ctx, j, st, i) })
	}
	return g.Wait()
}

// writer shares a call's stream among the goroutines of its choices.
type writer struct {
	mu  sync.Mutex // guards out
	out grpc.ServerStreamingServer[vllmengine.GenerateResponse]
}

func (w *writer) send(m *vllmengine.GenerateResponse) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out.Send(m)
}

// choice sends what one stream says, until it ends.
func (w *writer) choice(ctx context.Context, j *job, st *loop.Stream, index int) error {
	var ids []uint32
	for {
		select {
		case <-st.Ready():
		case <-ctx.Done():
			st.Abort()
			return status.FromContextError(ctx.Err()).Err()
		}
		var state loop.State
		ids, state = st.Take(ids)
		if state.Err != nil {
			return refusal(state.Err)
		}
		if err := w.tell(j, ids, state, index); err != nil {
			st.Abort()
			return err
		}
		if state.Done {
			return nil
		}
	}
}

func (w *writer) tell(j *job, ids []uint32, state loop.State, index int) error {
	if j.stream && (len(ids) > 0 || state.Done) {
		if err := w.send(chunk(j, ids, state, index)); err != nil {
			return err
		}
	}
	if !state.Done {
		return nil
	}
	return w.send(complete(j, ids, state, index))
}

// chunk carries the tokens since the last one and, as vLLM's servicer does, their number only.
func chunk(j *job, ids []uint32, state loop.State, index int) *vllmengine.GenerateResponse {
	return &vllmengine.GenerateResponse{Response: &vllmengine.GenerateResponse_Chunk{Chunk: &vllmengine.GenerateStreamChunk{
		TokenIds: ids, PromptTokens: uint32(len(j.req.Tokens)), CompletionTokens: uint32(len(ids)),
		CachedTokens: uint32(state.Cached), Index: uint32(index),
	}}}
}

// complete ends a choice. Behind a stream of chunks it repeats the last one's tokens, as vLLM's servicer does.
func complete(j *job, ids []uint32, state loop.State, index int) *vllmengine.GenerateResponse {
	return &vllmengine.GenerateResponse{Response: &vllmengine.GenerateResponse_Complete{Complete: &vllmengine.GenerateComplete{
		OutputIds: ids, FinishReason: state.Finish, PromptTokens: uint32(len(j.req.Tokens)), CompletionTokens: uint32(len(ids)),
		CachedTokens: uint32(state.Cached), Index: uint32(index),
	}}}
}

// refusal is the status of what the engine has against a request.
func refusal(err error) error {
	if errors.Is(err, engine.ErrTooLong) || errors.Is(err, engine.ErrNeverFits) || errors.Is(err, engine.ErrBadRequest) {
		return invalid("%v", err)
	}
	return status.Error(codes.Unavailable, err.Error())
}
