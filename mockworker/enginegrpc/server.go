package enginegrpc

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"fleetdrill/internal/protos/vllmengine"
	"fleetdrill/mockworker/loop"
	"fleetdrill/mockworker/publish"
)

// Rank is one data-parallel rank.
type Rank struct {
	Loop *loop.Loop
	// Publisher is nil when KV events are off.
	Publisher *publish.Publisher
}

// Options make a Server. All fields but Log are needed.
type Options struct {
	Model string
	// Version is the engine's, told with loads.
	Version string
	// BlockSize in tokens and NumBlocks (the null block included) tell which requests can never fit.
	BlockSize, NumBlocks int
	MaxModelLen          int
	// MaxTokens is the length of an answer to a request that sets no maximum: mock engines never stop by
	// themselves.
	MaxTokens int
	// MaxMessageBytes bounds a request.
	MaxMessageBytes int
	// FullLoads tells in GetLoads also what vLLM's servicer leaves zero.
	FullLoads bool
	// Ranks are the engines, by data-parallel rank.
	Ranks []Rank
	Log   *slog.Logger
}

// Server answers the gRPC port of one worker.
type Server struct {
	vllmengine.UnimplementedVllmEngineServer

	o       Options
	grpc    *grpc.Server
	health  *health.Server
	started time.Time
	// received is when the last generation request came, unix ns.
	received atomic.Int64
	turn     atomic.Uint64 // rotates which rank wins a tie
	open     registry
	groups   []groups // by rank

	draining context.Context // ends when subscriptions must
	drain    context.CancelFunc
}

// Clients ping as often as every second, with or without a call; a little less is let pass.
const minPing = 500 * time.Millisecond

// New makes the server of a worker's gRPC port.
func New(o Options) *Server {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{o: o, started: time.Now(), health: health.NewServer(), groups: make([]groups, len(o.Ranks))}
	s.draining, s.drain = context.WithCancel(context.Background())
	s.grpc = grpc.NewServer(
		grpc.MaxRecvMsgSize(o.MaxMessageBytes),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
		grpc.WaitForHandlers(true),
	)
	vllmengine.RegisterVllmEngineServer(s.grpc, s)
	grpc_health_v1.RegisterHealthServer(s.grpc, s.health)
	s.health.SetServingStatus(vllmengine.VllmEngine_ServiceDesc.ServiceName, grpc_health_v1.HealthCheckResponse_SERVING)
	reflection.Register(s.grpc)
	return s
}

// Serve answers on ln until Close or Drain; then it returns nil.
func (s *Server) Serve(ln net.Listener) error { return s.grpc.Serve(ln) }

// Drain takes no new connections, ends subscriptions and lets requests end, until ctx does. It reports
// whether all of them did.
func (s *Server) Drain(ctx context.Context) bool {
	s.drain()
	s.health.Shutdown()
	var wg sync.WaitGroup
	ended := make(chan struct{})
	wg.Go(func() {
		s.grpc.GracefulStop()
		close(ended)
	})
	defer wg.Wait()
	select {
	case <-ended:
		return true
	case <-ctx.Done():
		s.grpc.Stop()
		return false
	}
}

// Close ends everything at once and waits for the handlers. The engines must be closed before.
func (s *Server) Close() {
	s.drain()
	s.grpc.Stop()
}

// pick chooses the rank of a request: the one with the fewest open requests, in turn among equals.
func (s *Server) pick() int {
	n := len(s.o.Ranks)
	best := int(s.turn.Add(1) % uint64(n))
	least := s.o.Ranks[best].Loop.Open()
	for i := 1; i < n; i++ {
		rank := (best + i) % n
		if open := s.o.Ranks[rank].Loop.Open(); open < least {
			best, least = rank, open
		}
	}
	return best
}
