package enginegrpc

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"fleetdrill/internal/leaks"
	pb "fleetdrill/internal/protos/smgcommon"
	"fleetdrill/internal/protos/vllmengine"
	"fleetdrill/mockworker/blockhash"
	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/publish"
	"fleetdrill/mockworker/truth"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// patience bounds a test that would hang.
const patience = 2 * time.Minute

// serve starts a server in front of one publisher, and a client.
func serve(t testing.TB) (*publish.Publisher, vllmengine.VllmEngineClient, context.Context) {
	t.Helper()
	cfg := publish.DefaultConfig()
	cfg.Endpoint = "tcp://*:0"
	p, err := publish.New(publish.Options{Config: cfg, Host: "127.0.0.1", Encoder: encoder(t, "vllm-0.25"), Fold: truth.NewFold(16)})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := New(Options{MaxMessageBytes: 1 << 20, Ranks: []Rank{{Publisher: p}}})
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ln) }()
	// A window of a fixed size, or a client that does not read would take in some 16 MB before it is slow.
	conn, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStaticStreamWindowSize(64<<10))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(func() {
		cancel()
		conn.Close()
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		s.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return p, vllmengine.NewVllmEngineClient(conn), ctx
}

func subscribe(t testing.TB, ctx context.Context, c vllmengine.VllmEngineClient) grpc.ServerStreamingClient[pb.KvEventBatch] {
	t.Helper()
	st, err := c.SubscribeKvEvents(ctx, &pb.SubscribeKvEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Header(); err != nil {
		t.Fatal(err)
	}
	return st
}

// stores is a store of so many blocks, each of some 60 bytes.
func stores(blocks int) []engine.Event {
	ev := engine.Event{Kind: engine.Stored, BlockSize: 16, Medium: engine.MediumGPU, SpecKind: engine.KindFullAttention, Tokens: make([]uint32, 16*blocks)}
	for i := range blocks {
		ev.Hashes = append(ev.Hashes, blockhash.FromInt(uint64(i)<<50))
	}
	return []engine.Event{ev}
}

// A subscriber that does not read holds up nobody: the publisher takes every batch, another subscriber
// gets every batch, and the slow one finds a gap when it reads again, and the newest behind it.
func TestSlowSubscriberHoldsUpNobody(t *testing.T) {
	p, c, ctx := serve(t)
	slow := subscribe(t, ctx, c)
	quick := subscribe(t, ctx, c)
	const n = 6000 // more than wait for one subscriber
	read := make(chan uint64)
	go func() {
		var last uint64
		for last < n {
			b, err := quick.Recv()
			if err != nil || b.SequenceNumber != last+1 {
				t.Errorf("the quick one: %v behind %d, %v", b.GetSequenceNumber(), last, err)
				break
			}
			last = b.SequenceNumber
			if last%100 == 0 {
				read <- last
			}
		}
		close(read)
	}()
	events := stores(8) // small: the race detector makes each token of them cost
	for i := range n {
		if err := p.Publish(ctx, events); err != nil {
			t.Fatal(err)
		}
		if i%100 == 99 { // in step with the quick one
			if last, ok := <-read; !ok || last != uint64(i+1) {
				t.Fatalf("the quick one is at %d of %d", last, i+1)
			}
		}
	}
	<-read
	var last, missing uint64
	for last < n {
		b, err := slow.Recv()
		if err != nil {
			t.Fatal(err)
		}
		missing += b.SequenceNumber - last - 1
		last = b.SequenceNumber
	}
	if missing == 0 || missing > n-1000 {
		t.Errorf("the slow one misses %d of %d", missing, n)
	}
}

// BenchmarkStream is what one subscriber takes: batches of 64 blocks of 16 tokens over loopback.
func BenchmarkStream(b *testing.B) {
	p, c, _ := serve(b)
	st := subscribe(b, context.Background(), c)
	events := stores(64)
	window := make(chan struct{}, 1000)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range b.N {
			got, err := st.Recv()
			if err != nil || got.SequenceNumber != uint64(i+1) {
				b.Errorf("batch %d: %v, %v", i, got.GetSequenceNumber(), err)
				return
			}
			<-window
		}
	}()
	b.ResetTimer()
	for range b.N {
		select {
		case window <- struct{}{}:
		case <-done:
			b.FailNow()
		}
		if err := p.Publish(context.Background(), events); err != nil {
			b.Fatal(err)
		}
	}
	<-done
	b.ReportMetric(64*float64(b.N)/b.Elapsed().Seconds(), "blocks/s")
}
