package tail

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"fleetdrill/internal/deadport"
	pb "fleetdrill/internal/protos/smgcommon"
	"fleetdrill/internal/protos/vllmengine"
	"fleetdrill/mockworker/blockhash"
	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/wire"
)

// part is what a scripted engine does with one subscription: check the cursor, send, end.
type part struct {
	start uint64
	send  []*pb.KvEventBatch
	err   error // nil keeps the stream open until the subscriber leaves
	quiet bool  // no headers before the first message
}

// scripted is an engine whose subscriptions go by a script.
type scripted struct {
	vllmengine.UnimplementedVllmEngineServer
	t     *testing.T
	mu    sync.Mutex // guards parts
	parts []part
}

func (s *scripted) SubscribeKvEvents(r *pb.SubscribeKvEventsRequest, out grpc.ServerStreamingServer[pb.KvEventBatch]) error {
	s.mu.Lock()
	if len(s.parts) == 0 {
		s.mu.Unlock()
		return status.Error(codes.Internal, "the script is over")
	}
	p := s.parts[0]
	s.parts = s.parts[1:]
	s.mu.Unlock()
	if r.StartSequenceNumber != p.start {
		s.t.Errorf("subscribed from %d, want %d", r.StartSequenceNumber, p.start)
	}
	if len(p.send) == 0 && p.err != nil {
		return p.err
	}
	if !p.quiet {
		if err := out.SendHeader(metadata.MD{}); err != nil {
			return err
		}
	}
	for _, b := range p.send {
		if err := out.Send(b); err != nil {
			return err
		}
	}
	if p.err == nil {
		<-out.Context().Done()
	}
	return p.err
}

// engineOf serves under a script until the test ends.
func engineOf(t *testing.T, parts ...part) (o Options) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer(grpc.WaitForHandlers(true))
	vllmengine.RegisterVllmEngineServer(srv, &scripted{t: t, parts: parts})
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ln) }()
	t.Cleanup(func() {
		srv.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return Options{Events: schemeGRPC + ln.Addr().String(), Wait: patience, Algorithms: algorithms(t)}
}

// numbered makes a batch of one rank; a second passes with every number.
func numbered(rank int32, seq uint64, events ...*pb.KvCacheEvent) *pb.KvEventBatch {
	return &pb.KvEventBatch{SequenceNumber: seq, Timestamp: 1757500000.25 + float64(seq), DpRank: &rank, Events: events}
}

// sent is n blocks of 4 tokens from the first on, hashed by h.
func sent(h *blockhash.Hasher, from uint32, n int) *pb.KvCacheEvent {
	out, parent := &pb.KvBlocksStored{}, h.NoneHash()
	for i := range n {
		ids := []uint32{from, from + 1, from + 2, from + uint32(i)}
		parent = h.Next(parent, ids, blockhash.Extra{})
		out.Blocks = append(out.Blocks, &pb.KvBlock{BlockHash: int64(parent.EventInt()), TokenIds: ids, BlockSize: 4})
	}
	return &pb.KvCacheEvent{Data: &pb.KvCacheEvent_Stored{Stored: out}}
}

func gone(hashes ...int64) *pb.KvCacheEvent {
	return &pb.KvCacheEvent{Data: &pb.KvCacheEvent_Removed{Removed: &pb.KvBlocksRemoved{BlockHashes: hashes, Tier: pb.KvCacheTier_KV_CACHE_TIER_DEVICE}}}
}

func cleared() *pb.KvCacheEvent {
	return &pb.KvCacheEvent{Data: &pb.KvCacheEvent_Cleared{Cleared: &pb.KvCacheCleared{}}}
}

// foreign carries a field that this interface does not have.
func foreign(b *pb.KvEventBatch) *pb.KvEventBatch {
	b.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 5, protowire.VarintType), 1))
	return b
}

// tailGolden tails count batches and compares the lines with a file.
func tailGolden(t *testing.T, o Options, file string, count int) {
	t.Helper()
	o.Count = count
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var got strings.Builder
	err := Run(ctx, o, func(l Line) {
		got.WriteString(strings.ReplaceAll(l.String(), o.Events, "ENDPOINT") + "\n")
	})
	if err != nil || ctx.Err() != nil {
		t.Fatalf("%v, %v after:\n%s", err, ctx.Err(), got.String())
	}
	if *update {
		if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// TestMessages shows what an engine's gRPC stream can do to a subscriber, and how it goes on.
func TestMessages(t *testing.T) {
	sg, sha := blockhash.NewSGLang(), hasher(t, "sha256", "0")
	one := numbered(0, 1, sent(sha, 1000, 5))
	idle := &pb.KvEventBatch{SequenceNumber: 2, DpRank: proto.Int32(0), Load: &pb.EngineLoad{LoadOnly: true, Running: 3, Waiting: 1, WaitingUncachedTokens: proto.Uint64(640), TokenUsage: 0.25, GenThroughput: 120}}
	chunk := numbered(0, 7, cleared(), sent(sg, 3000, 2))
	chunk.Snapshot = &pb.KvSnapshotChunk{Count: 1, Blocks: 2}
	o := engineOf(t,
		part{send: []*pb.KvEventBatch{one, one, numbered(0, 2, gone(5)), idle, numbered(0, 5, gone(6, 7, 8, 9)), numbered(1, 9, sent(sha, 2000, 1)), numbered(1, 11, gone(1)), numbered(0, 6, cleared())},
			err: status.Error(codes.DataLoss, "the publisher restarted")},
		part{start: 2, send: []*pb.KvEventBatch{numbered(0, 3, gone(4)), idle, numbered(1, 8, gone(1)), numbered(0, 5, gone(6, 7, 8, 9))}, err: status.Error(codes.Canceled, "never read")},
		part{start: 9, err: status.Error(codes.OutOfRange, "there are 2 ranks")},
		part{send: []*pb.KvEventBatch{foreign(numbered(0, 1, cleared()))}, err: status.Error(codes.Unavailable, "shutting down")},
		part{start: 1, err: status.Error(codes.OutOfRange, "sequence number 1 is ahead of the newest batch, 0")},
		part{send: []*pb.KvEventBatch{chunk}, quiet: true},
	)
	o.Replay = o.Events
	tailGolden(t, o, "testdata/grpc.txt", 9)
}

// A stream of the first interface is called so, and a resumed one begins behind its cursor.
func TestFirstInterface(t *testing.T) {
	o := engineOf(t, part{start: 4, send: []*pb.KvEventBatch{{SequenceNumber: 5, Events: []*pb.KvCacheEvent{sent(blockhash.NewSGLang(), 100, 2), {}}}}})
	o.From = 4
	tailGolden(t, o, "testdata/grpc_first.txt", 1)
}

// What cannot be tailed is told at once when the server says so, and after the wait otherwise.
func TestNoEventsOverGRPC(t *testing.T) {
	off := engineOf(t, part{err: status.Error(codes.Unimplemented, "KV cache events not enabled")})
	bare := func() Options {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		srv := grpc.NewServer()
		go srv.Serve(ln)
		t.Cleanup(srv.Stop)
		return Options{Events: schemeGRPC + ln.Addr().String(), Wait: patience}
	}()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close() // it takes connections and says nothing
	refused, silent := schemeGRPC+deadport.New(t), schemeGRPC+ln.Addr().String()
	for want, o := range map[string]Options{
		"KV cache events not enabled": off,
		"unknown service":             bare,
		// Whether a try has met anything within the wait changes nothing.
		"nobody answers within 1ns: dial tcp":   {Events: refused, Wait: time.Nanosecond},
		"nobody answers within 50ms: dial tcp":  {Events: refused, Wait: 50 * time.Millisecond},
		"nobody answers within 1ns: something":  {Events: silent, Wait: time.Nanosecond},
		"nobody answers within 1.5s: something": {Events: silent, Wait: 1500 * time.Millisecond},
	} {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		err := Run(ctx, o, func(l Line) { t.Errorf("said %s", l) })
		cancel()
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), o.Events) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A resumed stream asks for the last batch once more: the same one goes on, another one is a restart that
// begins from nothing, and one that is out of reach is done without.
func TestResumedOverGRPC(t *testing.T) {
	away := status.Error(codes.Unavailable, "gone")
	batch := func(seq uint64, hash int64) *pb.KvEventBatch { return numbered(0, seq, gone(hash)) }
	o := engineOf(t,
		part{send: []*pb.KvEventBatch{batch(1, 1), batch(2, 2), batch(3, 3)}, err: away},
		part{start: 2, send: []*pb.KvEventBatch{batch(3, 3), batch(4, 4)}, err: away},
		part{start: 3, err: status.Error(codes.OutOfRange, "older than the history, which begins at 5")},
		part{start: 4, send: []*pb.KvEventBatch{batch(5, 5)}, err: away},
		part{start: 4, send: []*pb.KvEventBatch{batch(5, 55), batch(6, 66)}, err: status.Error(codes.Internal, "never read")},
		part{send: []*pb.KvEventBatch{batch(4, 44), batch(5, 55)}, err: away},
		part{start: 4, send: []*pb.KvEventBatch{batch(6, 66)}},
	)
	tailGolden(t, o, "testdata/grpc_resumed.txt", 8)
}

// A capture holds the messages byte for byte.
func TestCaptureOfMessages(t *testing.T) {
	want := numbered(0, 1, sent(blockhash.NewSGLang(), 100, 2))
	o := engineOf(t, part{send: []*pb.KvEventBatch{want}})
	var out bytes.Buffer
	o.Record, o.Count = &out, 1
	if err := Run(context.Background(), o, func(Line) {}); err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for dec := json.NewDecoder(&out); ; {
		var r Record
		if err := dec.Decode(&r); err != nil {
			break
		}
		kinds = append(kinds, r.Kind)
		if r.Kind == "capture" && r.Transport != "grpc" {
			t.Errorf("head %+v", r)
		}
		if r.Kind == SourceLive {
			raw, err := proto.Marshal(want)
			if err != nil || len(r.Frames) != 1 || r.Frames[0] != hex.EncodeToString(raw) {
				t.Errorf("frames %v, want %s; %v", r.Frames, hex.EncodeToString(raw), err)
			}
		}
	}
	if diff := cmp.Diff([]string{"capture", "up", "live"}, kinds); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}

// The end that is asked for has its summary, with an engine that is silent, too.
func TestEndsWhenAskedOverGRPC(t *testing.T) {
	o := engineOf(t, part{})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var kinds []Kind
	err := Run(ctx, o, func(l Line) {
		kinds = append(kinds, l.Kind)
		cancel()
	})
	if diff := cmp.Diff([]Kind{KindConnected, KindSummary}, kinds); err != nil || diff != "" {
		t.Errorf("%v, lines:\n%s", err, diff)
	}
}

// FuzzPushed feeds a tailer what a hostile gRPC server may send: every message leaves a line.
func FuzzPushed(f *testing.F) {
	for _, m := range []proto.Message{numbered(0, 3, cleared(), gone(4)), foreign(numbered(2, 1)), &pb.KvEventBatch{Load: &pb.EngineLoad{LoadOnly: true}}, numbered(-1, 1), numbered(1<<30, 1)} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, b)
	}
	f.Add([]byte{0xff}, []byte{0x08})
	f.Fuzz(func(t *testing.T, one, two []byte) {
		lines := 0
		tl := newTailer(Options{Algorithms: []Algorithm{{Name: "SGLang", Chain: chain(blockhash.NewSGLang())}}}, nil, func(l Line) {
			if l.String() == "" {
				t.Fatal("a line says nothing")
			}
			lines++
		})
		tl.past, tl.read = false, readMessage
		for _, m := range [][]byte{one, two, one} {
			before := lines
			tl.pushed(1, m)
			if lines == before {
				t.Fatalf("message %x left no line", m)
			}
		}
		tl.end(1)
	})
}

// BenchmarkPushed is what the core takes of batches of 64 blocks.
func BenchmarkPushed(b *testing.B) { benchmark(b, false) }

// BenchmarkMessage is the same over ZMQ.
func BenchmarkMessage(b *testing.B) { benchmark(b, true) }

func benchmark(b *testing.B, zmq bool) {
	tl := newTailer(Options{}, nil, func(l Line) { _ = l.String() })
	h := blockhash.NewSGLang()
	if !zmq {
		tl.past, tl.read = false, readMessage
	}
	payloads := make([][]byte, 16)
	for i := range payloads {
		event := sent(h, uint32(1000*i), 64)
		m := numbered(0, 0, event)
		m.SequenceNumber = 0
		raw, err := proto.Marshal(m)
		if err != nil {
			b.Fatal(err)
		}
		if payloads[i] = raw; zmq {
			payloads[i] = msgpackOf(b, event.GetStored())
		}
	}
	b.ResetTimer()
	for i := range b.N {
		payload, seq := payloads[i%len(payloads)], uint64(i+1)
		if zmq {
			tl.message(1, [][]byte{nil, seqOf(seq), payload})
			continue
		}
		// A field that comes again counts: the number goes behind the message.
		tl.pushed(1, protowire.AppendVarint(protowire.AppendTag(payload[:len(payload):len(payload)], 1, protowire.VarintType), seq))
	}
	b.ReportMetric(64*float64(b.N)/b.Elapsed().Seconds(), "blocks/s")
}

// msgpackOf is the same store as vLLM 0.25 sends it.
func msgpackOf(b *testing.B, s *pb.KvBlocksStored) []byte {
	b.Helper()
	enc, err := wire.New("vllm-0.25", wire.Options{IntHashes: true})
	if err != nil {
		b.Fatal(err)
	}
	ev := engine.Event{Kind: engine.Stored, BlockSize: 4, SpecKind: engine.KindFullAttention, Medium: engine.MediumGPU, ExtraKeys: make([]engine.ExtraKey, len(s.Blocks))}
	for _, block := range s.Blocks {
		ev.Hashes = append(ev.Hashes, blockhash.FromInt(uint64(block.BlockHash)))
		ev.Tokens = append(ev.Tokens, block.TokenIds...)
	}
	return enc.AppendBatch(nil, 1, []engine.Event{ev})
}
