package tail

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	pb "fleetdrill/internal/protos/smgcommon"
	"fleetdrill/internal/protos/vllmengine"
	"fleetdrill/mockworker/blockhash"
)

// tap is an engine that sends batches as fast as they are taken.
type tap struct {
	vllmengine.UnimplementedVllmEngineServer
	event *pb.KvCacheEvent
}

func (e tap) SubscribeKvEvents(_ *pb.SubscribeKvEventsRequest, out grpc.ServerStreamingServer[pb.KvEventBatch]) error {
	if err := out.SendHeader(metadata.MD{}); err != nil {
		return err
	}
	for seq := uint64(1); ; seq++ {
		if err := out.Send(numbered(0, seq, e.event)); err != nil {
			return err
		}
	}
}

// BenchmarkRunGRPC is all of tail but the printing, with the engine on the same cores: batches of 64 blocks
// over loopback.
func BenchmarkRunGRPC(b *testing.B) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	srv := grpc.NewServer(grpc.WaitForHandlers(true))
	vllmengine.RegisterVllmEngineServer(srv, tap{event: sent(blockhash.NewSGLang(), 100, 64)})
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ln) }()
	defer func() {
		srv.Stop()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	}()
	o := Options{Events: schemeGRPC + ln.Addr().String(), Wait: patience, Count: b.N, Algorithms: []Algorithm{{Name: "SGLang", Chain: chain(blockhash.NewSGLang())}}}
	b.ResetTimer()
	if err := Run(context.Background(), o, func(l Line) { _ = l.String() }); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(64*float64(b.N)/b.Elapsed().Seconds(), "blocks/s")
}
