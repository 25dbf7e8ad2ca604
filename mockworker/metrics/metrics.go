package metrics

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/loop"
)

// Options make a Set.
type Options struct {
	Model       string
	BlockSize   int
	NumBlocks   int
	MaxModelLen int
	// Caching says whether prefixes are cached, for vllm:cache_config_info; HashAlgo by which hash.
	Caching  bool
	HashAlgo string
	// Adapters is the number of LoRA adapters that may be served at once; 0 is an engine without.
	Adapters int
}

// Set is the series of one worker.
type Set struct {
	o        Options
	registry *prometheus.Registry
	// since has the _created series, which OpenMetrics makes out of the others.
	since   *prometheus.Registry
	created time.Time
}

// New makes an empty set: own registry, without the Go runtime's series, which an engine does not have.
func New(o Options) *Set {
	return &Set{o: o, registry: prometheus.NewRegistry(), since: prometheus.NewRegistry(), created: time.Now()}
}

func unixSeconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

// Handler answers a scrape.
func (s *Set) Handler() http.Handler {
	return page(s.registry, prometheus.Gatherers{s.since}, true)
}

// Rank adds the histograms of one rank and returns their observer; Watch adds its counters and gauges.
func (s *Set) Rank(rank int) *Rank {
	r := &Rank{}
	labels := prometheus.Labels{"engine": strconv.Itoa(rank), "model_name": s.o.Model}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "vllm:" + name, Help: help, ConstLabels: labels, Buckets: buckets})
		s.registry.MustRegister(h)
		s.since.MustRegister(s.createdGauge("vllm:"+name, help, labels))
		return h
	}
	tokens := oneTwoFive(s.o.MaxModelLen)
	r.ttft = histogram("time_to_first_token_seconds", "Histogram of time to first token in seconds.", ttftBuckets)
	r.itl = histogram("inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", tokenBuckets)
	r.tpot = histogram("request_time_per_output_token_seconds", "Histogram of time_per_output_token_seconds per request.", tokenBuckets)
	r.e2e = histogram("e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", requestBuckets)
	r.queue = histogram("request_queue_time_seconds", "Histogram of time spent in WAITING phase for request.", requestBuckets)
	r.prefill = histogram("request_prefill_time_seconds", "Histogram of time spent in PREFILL phase for request.", requestBuckets)
	r.decode = histogram("request_decode_time_seconds", "Histogram of time spent in DECODE phase for request.", requestBuckets)
	r.inference = histogram("request_inference_time_seconds", "Histogram of time spent in RUNNING phase for request.", requestBuckets)
	r.prompt = histogram("request_prompt_tokens", "Number of prefill tokens processed.", tokens)
	r.generation = histogram("request_generation_tokens", "Number of generation tokens processed.", tokens)
	r.maxTokens = histogram("request_params_max_tokens", "Histogram of the max_tokens request parameter.", tokens)
	r.largest = histogram("request_max_num_generation_tokens", "Histogram of maximum number of requested generation tokens.", tokens)
	r.choices = histogram("request_params_n", "Histogram of the n request parameter.", choiceBuckets)
	r.computed = histogram("request_prefill_kv_computed_tokens", "Histogram of new KV tokens computed during prefill (excluding cached tokens).", tokens)
	r.iteration = histogram("iteration_tokens_total", "Histogram of number of tokens per engine_step.", iterationBuckets)
	return r
}

// Watch makes scrapes read the counters and gauges of a rank from snapshot.
func (s *Set) Watch(rank int, snapshot func() loop.Snapshot) {
	w := newWatcher(s.o, strconv.Itoa(rank), snapshot)
	w.since = s.created
	s.registry.MustRegister(w)
	for _, c := range w.counters {
		s.since.MustRegister(s.createdGauge(c.name, c.help, c.labels))
	}
	if s.o.Adapters > 0 && rank == 0 {
		s.registry.MustRegister(&adapterInfo{most: s.o.Adapters, snapshot: snapshot})
	}
}

// Rank observes one rank's requests. Its methods are for the loop goroutine.
type Rank struct {
	ttft, itl, tpot, e2e, queue, prefill, decode, inference prometheus.Histogram
	prompt, generation, maxTokens, iteration                prometheus.Histogram
	largest, choices, computed                              prometheus.Histogram
}

// createdGauge is the series that Python's client puts beside each counter and histogram: when it began.
func (s *Set) createdGauge(name, help string, labels prometheus.Labels) prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name + "_created", Help: help, ConstLabels: labels})
	g.Set(unixSeconds(s.created))
	return g
}

func seconds(ns int64) float64 { return float64(ns) / 1e9 }

// Token observes one output token, sinceNs after the arrival (index 0) or the token before.
func (r *Rank) Token(index int, sinceNs int64) {
	if index == 0 {
		r.ttft.Observe(seconds(sinceNs))
		return
	}
	r.itl.Observe(seconds(sinceNs))
}

// Ended observes a request that ran to its end; of an aborted one the engine tells counters only.
func (r *Rank) Ended(_ string, maxTokens int, s engine.RequestStats) {
	if s.Outcome != engine.FinishLength {
		return
	}
	r.e2e.Observe(seconds(s.LastToken - s.Arrival))
	r.queue.Observe(seconds(s.Scheduled - s.Arrival))
	r.prefill.Observe(seconds(s.FirstToken - s.Scheduled))
	r.decode.Observe(seconds(s.LastToken - s.FirstToken))
	r.inference.Observe(seconds(s.LastToken - s.Scheduled))
	if s.Output > 1 {
		r.tpot.Observe(seconds(s.LastToken-s.FirstToken) / float64(s.Output-1))
	}
	r.prompt.Observe(float64(s.Prompt))
	r.generation.Observe(float64(s.Output))
	r.maxTokens.Observe(float64(maxTokens))
	r.largest.Observe(float64(s.Output))
	r.computed.Observe(float64(s.Prompt - s.CachedTokens))
	r.choices.Observe(1) // each choice is a request of its own to the engine
}

// Step observes one model pass.
func (r *Rank) Step(tokens int) { r.iteration.Observe(float64(tokens)) }

var (
	ttftBuckets      = []float64{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
	tokenBuckets     = []float64{.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}
	requestBuckets   = []float64{.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
	choiceBuckets    = []float64{1, 2, 5, 10, 20}
	iterationBuckets = []float64{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}
)

// oneTwoFive is 1, 2, 5, 10, ... up to most: the engine's buckets of token counts.
func oneTwoFive(most int) (b []float64) {
	for exp := 1; ; exp *= 10 {
		for _, m := range []int{1, 2, 5} {
			if m*exp > most {
				return b
			}
			b = append(b, float64(m*exp))
		}
	}
}
