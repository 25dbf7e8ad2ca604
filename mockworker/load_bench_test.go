package mockworker

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkUnderLoad is a completion of a worker under load, whose truth is sampled every 100 ms as a drill
// does it: short ones, or prompts of 1,000 tokens that nobody shares, which keep a full pool of 16,384 blocks
// evicting. With -cpuprofile the share of package truth and of the sampler can be read:
//
//	go test ./mockworker -run XXX -bench UnderLoad/long -benchtime 5s -cpuprofile /tmp/cpu
//	go tool pprof -top -focus 'mockworker/(truth|admin)' mockworker.test /tmp/cpu
func BenchmarkUnderLoad(b *testing.B) {
	for name, words := range map[string]int{"short": 8, "long": 1000} {
		b.Run(name, func(b *testing.B) {
			f := start(b, func(c *Config) { c.NumGPUBlocksOverride = 16_384 })
			stop, stopped := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(stopped)
				for {
					// Regular looks would keep step with the profiler, which then sees all of their cost or none.
					select {
					case <-stop:
						return
					case <-time.After(time.Duration(50+rand.IntN(100)) * time.Millisecond):
						f.summary()
					}
				}
			}()
			var n atomic.Int64
			b.SetParallelism(8)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					body := fmt.Sprintf(`{"model":"mock-8b","max_tokens":4,"prompt":%s}`, jsonOf(b, prompt(int(n.Add(1)), words)))
					resp, err := http.Post(f.worker().HTTP+"/v1/completions", "application/json", strings.NewReader(body))
					if err != nil {
						b.Error(err)
						return
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			})
			b.StopTimer()
			close(stop)
			<-stopped
			row := f.truth().Ranks[0]
			b.ReportMetric(float64(row.NextSeq)/float64(b.N), "batches/op")
		})
	}
}
