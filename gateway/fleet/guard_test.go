package fleet

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"fleetdrill/gateway/index"
	"fleetdrill/gateway/policy"
	"fleetdrill/internal/contract"
)

// Whatever happens to requests and workers, in any order: each guard is given back once, and the counts of
// the routing state are exactly the guards held.
func TestGuardsProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := NewCore(DefaultTiming())
		picker, _ := policy.New(policy.LeastLoad, 1)
		now := int64(time.Hour)
		var workers []*Worker
		for _, id := range []string{"w1", "w2", "w3"} {
			w, err := c.Add(now, contract.WorkerSpec{ID: id}, make([]index.Holder, 1))
			if err != nil {
				t.Fatal(err)
			}
			workers = append(workers, w)
		}
		held := map[*Request]bool{}
		var all []*Request
		any := func(t *rapid.T) *Request {
			if len(all) == 0 {
				t.Skip("no request yet")
			}
			return rapid.SampledFrom(all).Draw(t, "request")
		}
		t.Repeat(map[string]func(*rapid.T){
			"tick": func(t *rapid.T) {
				now += rapid.Int64Range(0, int64(time.Second)).Draw(t, "gap")
				c.Tick(now)
			},
			"ping": func(t *rapid.T) {
				w := rapid.SampledFrom(workers).Draw(t, "worker")
				c.PingDone(now, now, w, PingResult(rapid.IntRange(0, 3).Draw(t, "result")), 503)
			},
			"poll": func(t *rapid.T) {
				w := rapid.SampledFrom(workers).Draw(t, "worker")
				c.PollDone(now, now, w, true, &Record{Steps: rapid.Int64Range(0, 3).Draw(t, "steps"), HasSteps: true})
			},
			"place": func(t *rapid.T) {
				r, err := c.Place(now, Ask{Tokens: 100, Streamed: rapid.Bool().Draw(t, "streamed")}, picker)
				if err == nil {
					held[r] = true
					all = append(all, r)
				}
			},
			"sent":  func(t *rapid.T) { c.Sent(now, any(t)) },
			"first": func(t *rapid.T) { c.FirstByte(now, any(t)) },
			"byte":  func(t *rapid.T) { any(t).Worker.lastByte.Store(now) },
			"end": func(t *rapid.T) {
				r := any(t)
				if got := c.End(now, r, Outcome(rapid.IntRange(0, 3).Draw(t, "outcome"))); got != held[r] {
					t.Fatalf("End said %v for a guard held=%v", got, held[r])
				}
				delete(held, r)
			},
			"": func(t *rapid.T) {
				for _, a := range c.Take() {
					if a.Kind == EndRequest && !held[a.Request] {
						t.Fatal("asked for the end of a request that is over")
					}
				}
				sum := int64(0)
				for _, w := range workers {
					s := c.state(now, w)
					sum += s.Inflight
					if s.Inflight != w.held.Load() || w.progress.awaiting < 0 || w.load.ownTotal < 0 {
						t.Fatalf("%s: inflight %d, held %d, awaiting %d, own %d", w.ID, s.Inflight, w.held.Load(), w.progress.awaiting, w.load.ownTotal)
					}
				}
				if sum != int64(len(held)) {
					t.Fatalf("%d in flight, %d guards held", sum, len(held))
				}
			},
		})
	})
}

func TestMetricsText(t *testing.T) {
	text := `# HELP vllm:num_requests_running x
vllm:num_requests_running{engine="0",model_name="a } b"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 2.0
vllm:num_requests_waiting{engine="0"} 1
vllm:num_requests_waiting_by_reason{reason="capacity"} 9
vllm:kv_cache_usage_perc{engine="0"} 0.25
vllm:kv_cache_usage_perc{engine="1"} 0.75
vllm:iteration_tokens_total_bucket{le="1"} 7
vllm:iteration_tokens_total_count{engine="0"} 41
vllm:num_requests_running{engine="2"} NaN
vllm:num_requests_running
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="1000",num_gpu_blocks_override="7"} 1
vllm:cache_config_info{num_gpu_blocks="500"} 1
vllm:cache_config_info{engine="2",num_gpu_blocks="None"} 1
vllm:cache_config_info{engine="3",num_gpu_blocks="99999999999999999999"} 1
`
	got, err := ParseMetrics([]byte(text))
	want := Record{Running: 5, Waiting: 1, Usage: 0.5, Steps: 41, HasSteps: true, Pool: 1500}
	if err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	text = `sglang:num_running_reqs{dp_rank="0",engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 3.0
sglang:num_running_reqs{dp_rank="1",engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 4.0
sglang:num_queue_reqs{dp_rank="0"} 2.0
sglang:token_usage{dp_rank="0"} 0.5
sglang:token_usage{dp_rank="1"} 0.25
sglang:num_running_reqs_offline_batch{dp_rank="0"} 9
sglang:cache_config_info{num_pages="300",page_size="16"} 1
`
	got, err = ParseMetrics([]byte(text))
	want = Record{Running: 7, Waiting: 2, Usage: 0.375, Pool: 300}
	if err != nil || got != want {
		t.Errorf("SGLang: %+v, %v, want %+v", got, err, want)
	}
	if _, err := ParseMetrics([]byte("go_goroutines 7\n")); err != ErrNoLoad {
		t.Errorf("a page without load gave %v", err)
	}
}

func FuzzMetricsText(f *testing.F) {
	f.Add([]byte(`vllm:num_requests_running{engine="0"} 3`))
	f.Add([]byte("vllm:kv_cache_usage_perc{} \nvllm:x"))
	f.Add([]byte("vllm:num_requests_running 1\nvllm:cache_config_info{num_gpu_blocks=\"7\"} 1"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := ParseMetrics(text)
		if err == nil && (r.Running < 0 || r.Waiting < 0 || r.Usage < 0 || r.Usage != r.Usage || r.Pool < 0) {
			t.Fatalf("record %+v", r)
		}
	})
}

// A report whose step counter stands while there is work is frozen, and grows old.
func TestFrozenReportGrowsOld(t *testing.T) {
	timing := DefaultTiming()
	at := func(s int) int64 { return int64(s) * int64(time.Second) }
	var l load
	for s := 1; s <= 5; s++ {
		l.take(at(s), Record{Steps: 7, HasSteps: true}, true)
	}
	if l.usable(at(5), timing) {
		t.Error("a report frozen for four seconds is still used")
	}
	l.take(at(6), Record{Steps: 7, HasSteps: true}, false)
	if !l.usable(at(6), timing) {
		t.Error("an idle engine's steady report is not used")
	}
}

// Dispatches count until a record sampled after them arrives.
func TestOwnDispatchesFillIn(t *testing.T) {
	var l load
	l.sent(10, 100, 100)
	l.sent(20, 200, 50)
	l.take(15, Record{}, true)
	if l.ownTotal != 200 {
		t.Errorf("%d own tokens after a record of instant 15, want 200", l.ownTotal)
	}
	for range maxOwn + 5 {
		l.sent(30, 1, 1)
	}
	if len(l.own) != maxOwn || l.ownTotal != maxOwn {
		t.Errorf("%d dispatches of %d tokens kept, want %d of 1 each", len(l.own), l.ownTotal, maxOwn)
	}
}
