package zsock

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// BenchmarkPub publishes a batch as vLLM does, three frames of topic, 8 B and 2 KB, flat out over TCP to
// subscribers in the same process. ns/op is per message sent, msg/s per message delivered to all.
//
//	go test -run '^$' -bench Pub -benchmem ./internal/zsock
func BenchmarkPub(b *testing.B) {
	for _, n := range []int{1, 8} {
		b.Run(fmt.Sprintf("subs=%d", n), func(b *testing.B) { benchmarkPub(b, n) })
	}
}

func benchmarkPub(b *testing.B, subs int) {
	pub, endpoint := newBoundPub(b, PubOptions{})
	var received sync.WaitGroup
	window := make([]chan struct{}, subs) // keeps the slowest subscriber within the publisher's queue
	for i := range window {
		sub := newSub(b, endpoint, SubOptions{Topic: "kv"})
		sub.next(b, SubUp)
		window[i] = make(chan struct{}, 8192)
		received.Go(func() { drain(b, sub, window[i]) })
	}
	frames := numbered("kv-events", 1, make([]byte, 2<<10))
	b.ReportAllocs()
	start := time.Now() // b.Elapsed ends with the loop, the last deliveries do not
	for b.Loop() {
		for _, w := range window {
			w <- struct{}{}
		}
		pub.Send(frames...)
	}
	for _, w := range window {
		close(w)
	}
	received.Wait()
	b.ReportMetric(float64(b.N*subs)/time.Since(start).Seconds(), "msg/s")
	if s := pub.Stats(); s.Dropped > 0 {
		b.Errorf("%d messages dropped", s.Dropped)
	}
}

// drain receives one message for each token of the window.
func drain(b *testing.B, sub *Sub, window chan struct{}) {
	ctx := b.Context()
	for range window {
		if e, err := sub.Recv(ctx); err != nil || e.Kind != SubMessage {
			b.Errorf("received %v, %v", e.Kind, err)
			return
		}
	}
}
