package enginegrpc

import (
	"context"
	"math"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"fleetdrill/internal/protos/smgcommon"
	"fleetdrill/internal/protos/vllmengine"
	"fleetdrill/internal/tokens"
	"fleetdrill/mockworker/loop"
)

// HealthCheck is answered by the process, not by the engine: one that hangs is healthy here, too.
func (s *Server) HealthCheck(context.Context, *vllmengine.HealthCheckRequest) (*vllmengine.HealthCheckResponse, error) {
	return &vllmengine.HealthCheckResponse{Healthy: true, Message: "Health"}, nil
}

// GetModelInfo tells the model's limits. A mock model has no special tokens: it never ends a text.
func (s *Server) GetModelInfo(context.Context, *vllmengine.GetModelInfoRequest) (*vllmengine.GetModelInfoResponse, error) {
	return &vllmengine.GetModelInfoResponse{
		ModelPath: s.o.Model, ServedModelName: s.o.Model, TokenizerPath: s.o.Model, IsGeneration: true,
		MaxContextLength: uint32(s.o.MaxModelLen), MaxReqInputLen: clamp32(s.o.MaxModelLen), VocabSize: tokens.Vocab,
		ModelType: "mock", Architectures: []string{"MockForCausalLM"},
	}, nil
}

// GetServerInfo tells how busy the server is and how long it has been up.
func (s *Server) GetServerInfo(context.Context, *vllmengine.GetServerInfoRequest) (*vllmengine.GetServerInfoResponse, error) {
	var open int64
	for _, r := range s.o.Ranks {
		open += r.Loop.Open()
	}
	return &vllmengine.GetServerInfoResponse{
		ActiveRequests: uint32(open), LastReceiveTimestamp: float64(s.received.Load()) / 1e9,
		UptimeSeconds: time.Since(s.started).Seconds(), ServerType: "vllm-grpc", DataParallelSize: int32(len(s.o.Ranks)),
	}, nil
}

// GetLoads tells the load of every rank, or of the asked one, as of its last step.
func (s *Server) GetLoads(_ context.Context, r *vllmengine.GetLoadsRequest) (*vllmengine.GetLoadsResponse, error) {
	out := &vllmengine.GetLoadsResponse{
		Timestamp: time.Now().UTC().Format(time.RFC3339Nano), Version: s.o.Version, DpRankCount: int32(len(s.o.Ranks)),
	}
	if r.DpRank != nil && (r.GetDpRank() < 0 || int(r.GetDpRank()) >= len(s.o.Ranks)) {
		return nil, invalid("dp_rank %d is out of range [0, %d)", r.GetDpRank(), len(s.o.Ranks))
	}
	for i := range s.o.Ranks {
		if r.DpRank == nil || int(r.GetDpRank()) == i {
			out.Loads = append(out.Loads, s.load(i))
		}
	}
	return out, nil
}

func (s *Server) load(rank int) *vllmengine.SchedulerLoad {
	return scheduler(rank, s.o.Ranks[rank].Loop.Report(), s.o.FullLoads)
}

// scheduler is the load message of a rank. What an engine that hangs has not taken in is in none, as in a
// real one.
func scheduler(rank int, snap loop.Snapshot, full bool) *vllmengine.SchedulerLoad {
	out := &vllmengine.SchedulerLoad{
		DpRank: int32(rank), NumRunningReqs: clamp32(snap.Running), NumWaitingReqs: clamp32(snap.Waiting),
		NumTotalReqs: clamp32(snap.Running + snap.Waiting), TokenUsage: snap.KVUsage,
		MaxTotalNumTokens: clamp32(int(snap.MaxTokens)), MaxRunningRequests: clamp32(snap.MaxRunning),
	}
	if full {
		out.TokenUsage, out.NumUsedTokens = snap.TokenUsage, clamp32(int(snap.UsedTokens))
		out.GenThroughput, out.CacheHitRate = snap.GenRate, snap.HitRate
		out.Utilization = float64(snap.Running) / float64(max(1, snap.MaxRunning))
	}
	return out
}

func clamp32(n int) int32 { return int32(min(n, math.MaxInt32)) }

// Embed is for embedding models.
func (s *Server) Embed(context.Context, *vllmengine.EmbedRequest) (*vllmengine.EmbedResponse, error) {
	return nil, status.Error(codes.Unimplemented, "this engine serves a generation model: it has no embeddings")
}

// GetTokenizer has nothing to send: the stand-in tokenizer is no file.
func (s *Server) GetTokenizer(*smgcommon.GetTokenizerRequest, grpc.ServerStreamingServer[smgcommon.GetTokenizerChunk]) error {
	return status.Error(codes.Unimplemented, "a mock engine has no tokenizer files: use its /tokenize, or send token ids")
}
