package load

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
)

// How late requests leave at 1,000 per second with the server on the same cores, each answered by a
// stream of three tokens:
//
//	go test -run '^$' -bench SendLag -benchtime 5000x ./replayer/load
func BenchmarkSendLag(b *testing.B) {
	const rate = 1000
	body := []byte(token("a") + token("b") + token("c") + usage(3, 0) + "data: [DONE]\n\n")
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Write(body)
	}))
	defer s.Close()
	planned := make([]Request, b.N)
	prompt := make([]byte, 6000)
	for i := range planned {
		planned[i] = Request{OffsetNs: int64(i) * 1_000_000_000 / rate, ID: fmt.Sprint("r-", i), Body: prompt, MaxTokens: 3, Head: -1}
	}
	b.ResetTimer()
	records := Start(context.Background(), Options{URL: s.URL, Requests: List(planned)}).Wait()
	b.StopTimer()
	sum := Summarize(records, int64(b.N)*1_000_000_000/rate)
	if sum.OK != b.N {
		b.Fatalf("%+v", sum)
	}
	b.ReportMetric(sum.SendLag.P50, "lag-p50-ms")
	b.ReportMetric(sum.SendLag.P99, "lag-p99-ms")
	b.ReportMetric(sum.SendLag.Max, "lag-max-ms")
	b.ReportMetric(sum.Latency.P50, "latency-p50-ms")
}

// What a sampler pays ten times a second: 100,000 settled records and 100 open ones.
func BenchmarkSince(b *testing.B) {
	var book book
	for i := range 100_100 {
		f, _ := book.add(Record{GapsNs: make([]int64, 0, 1)})
		if i < 100_000 {
			book.settle(f)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if open, _ := book.since(100_000); len(open) != 100 {
			b.Fatal(len(open))
		}
	}
}
