package enginegrpc

import (
	"context"
	"slices"
	"sync"

	"fleetdrill/internal/protos/vllmengine"
	"fleetdrill/mockworker/loop"
)

// registry finds the open streams of a request by its id, for Abort. Clients may use an id again while it
// is open; it then stands for all of its requests, as in the engine.
type registry struct {
	mu      sync.Mutex // guards streams
	streams map[string][]*loop.Stream
}

func (r *registry) add(id string, streams []*loop.Stream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.streams == nil {
		r.streams = map[string][]*loop.Stream{}
	}
	r.streams[id] = append(r.streams[id], streams...)
}

func (r *registry) remove(id string, streams []*loop.Stream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.streams[id]
	rest := slices.DeleteFunc(all, func(s *loop.Stream) bool { return slices.Contains(streams, s) })
	if len(rest) == 0 {
		delete(r.streams, id)
		return
	}
	r.streams[id] = rest
}

func (r *registry) find(id string) []*loop.Stream {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.streams[id])
}

// Abort makes the named requests leave the engine at its next step; their calls end with finish reason
// "abort". Ids that are not open are no error, as in the engine.
func (s *Server) Abort(_ context.Context, req *vllmengine.AbortRequest) (*vllmengine.AbortResponse, error) {
	for _, id := range req.GetRequestIds() {
		for _, st := range s.open.find(id) {
			st.Abort()
		}
	}
	return &vllmengine.AbortResponse{}, nil
}
