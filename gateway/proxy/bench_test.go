package proxy

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"fleetdrill/gateway/fleet"
	"fleetdrill/gateway/index/maptree"
	"fleetdrill/gateway/policy"
	"fleetdrill/internal/contract"
	"fleetdrill/internal/tokens"
)

// benchRig is a proxy in front of one fast upstream; both serve a small JSON answer.
func benchRig(b *testing.B, answer http.HandlerFunc) (direct, proxied string) {
	b.Helper()
	up := httptest.NewServer(answer)
	picker, err := policy.New(policy.CacheAware, 1)
	if err != nil {
		b.Fatal(err)
	}
	f := fleet.New(fleet.Options{Timing: fleet.DefaultTiming(), Picker: picker})
	p := New(Options{Fleet: f, Index: maptree.New(), Retries: 2, MaxBody: 1 << 20, Registry: prometheus.NewRegistry()})
	srv := httptest.NewServer(p.Handler())
	b.Cleanup(func() { srv.Close(); f.Close(); up.Close() })
	if err := f.Add(contract.WorkerSpec{ID: "w1", URL: up.URL, KVBlockSize: 16}); err != nil {
		b.Fatal(err)
	}
	for end := time.Now().Add(wait); !f.Ready(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			b.Fatal("the upstream did not become ready")
		}
	}
	return up.URL, srv.URL
}

// BenchmarkNonStreamed times whole requests, direct and through the gateway, a 64-token prompt each; the
// difference of the p50s is what the gateway adds.
func BenchmarkNonStreamed(b *testing.B) {
	direct, proxied := benchRig(b, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"choices":[{"text":" bab"}]}`)
	})
	ids := make([]uint32, 64)
	for i := range ids {
		ids[i] = uint32(1000 + i)
	}
	body := `{"model":"m","prompt":"` + tokens.Decode(ids) + `"}`
	for _, c := range []struct{ name, url string }{{"direct", direct}, {"proxied", proxied}} {
		b.Run(c.name, func(b *testing.B) {
			client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
			defer client.CloseIdleConnections()
			times := make([]time.Duration, 0, b.N)
			b.ReportAllocs()
			for b.Loop() {
				start := time.Now()
				resp, err := client.Post(c.url+"/v1/completions", "application/json", strings.NewReader(body))
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				times = append(times, time.Since(start))
			}
			slices.Sort(times)
			b.ReportMetric(float64(times[len(times)/2].Microseconds()), "p50-us")
			b.ReportMetric(float64(times[len(times)*99/100].Microseconds()), "p99-us")
		})
	}
}

// BenchmarkChunk is the cost of passing one event of a stream on.
func BenchmarkChunk(b *testing.B) {
	_, proxied := benchRig(b, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for r.Context().Err() == nil {
			event(w, strings.Repeat("x", 150))
		}
	})
	resp, err := http.Post(proxied+"/v1/completions", "application/json", strings.NewReader(streamed))
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	buf := make([]byte, 170)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := io.ReadFull(resp.Body, buf); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkParse is the cost of reading a 9.5 KB text prompt, tokenizing included.
func BenchmarkParse(b *testing.B) {
	ids := make([]uint32, 9500/6)
	for i := range ids {
		ids[i] = uint32(1000 + 7*i)
	}
	body := []byte(`{"model":"m","prompt":"` + tokens.Decode(ids) + `","stream":true}`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := parseCompletion(body); err != nil {
			b.Fatal(err)
		}
	}
}
