package metrics

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/loop"
)

// Family is the series of one worker, whichever engine's names they have.
type Family interface {
	// Handler answers a scrape.
	Handler() http.Handler
	// For is the observer of a rank, Watch where its counters and gauges come from.
	For(rank int) loop.Observer
	Watch(rank int, snapshot func() loop.Snapshot)
}

// For implements Family.
func (s *Set) For(rank int) loop.Observer { return s.Rank(rank) }

// SGLangSet is the series of a worker with SGLang's names. Like SGLang's they come from two places: those of
// the schedulers, one per rank, and those of the one process in front of them.
type SGLangSet struct {
	o        Options
	ranks    int
	registry *prometheus.Registry
	front    *front
}

var (
	_ Family = (*Set)(nil)
	_ Family = (*SGLangSet)(nil)
)

// NewSGLang makes the series of a worker of so many ranks.
func NewSGLang(o Options, ranks int) *SGLangSet {
	s := &SGLangSet{o: o, ranks: ranks, registry: prometheus.NewRegistry()}
	s.front = newFront(s.frontLabels(), s.registry)
	return s
}

// Handler implements Family. Nothing tells since when it counts: SGLang gathers the figures of several
// processes, which leaves that out (sglang.srt.utils.add_prometheus_middleware).
func (s *SGLangSet) Handler() http.Handler {
	return page(s.registry, nil, false)
}

// For implements Family.
func (s *SGLangSet) For(int) loop.Observer { return s.front }

// engineType is what a server is that neither only prefills nor only decodes.
const engineType = "unified"

func (s *SGLangSet) frontLabels() prometheus.Labels {
	return prometheus.Labels{"model_name": s.o.Model, "engine_type": engineType}
}

// rankLabels are a scheduler's. Only a server of several ranks tells which.
func (s *SGLangSet) rankLabels(rank int) prometheus.Labels {
	l := merge(s.frontLabels(), prometheus.Labels{"tp_rank": "0", "pp_rank": "0"})
	if s.ranks > 1 {
		l["dp_rank"] = strconv.Itoa(rank)
	}
	return l
}

// Watch implements Family. The front's counters are sums over the ranks.
func (s *SGLangSet) Watch(rank int, snapshot func() loop.Snapshot) {
	s.front.snapshots = append(s.front.snapshots, snapshot)
	if rank == s.ranks-1 {
		s.registry.MustRegister(s.front.watcher(s.frontLabels()))
	}
	s.registry.MustRegister(s.scheduler(rank, snapshot))
}

// scheduler is the series of one rank.
func (s *SGLangSet) scheduler(rank int, snapshot func() loop.Snapshot) *watcher {
	w := &watcher{snapshot: snapshot}
	labels := s.rankLabels(rank)
	add := func(kind prometheus.ValueType, name, help string, value func(*loop.Snapshot) float64) {
		w.series = append(w.series, series{prometheus.NewDesc("sglang:"+name, help, nil, labels), kind, value})
	}
	gauge := func(name, help string, value func(*loop.Snapshot) float64) {
		add(prometheus.GaugeValue, name, help, value)
	}
	gauge("num_running_reqs", "The number of running requests.", func(s *loop.Snapshot) float64 { return float64(s.Running) })
	gauge("num_queue_reqs", "The number of requests in the waiting queue.", func(s *loop.Snapshot) float64 { return float64(s.Waiting) })
	gauge("num_used_tokens", "The number of used tokens.", func(s *loop.Snapshot) float64 { return s.KVUsage * float64(s.MaxTokens) })
	gauge("token_usage", "The token usage.", func(s *loop.Snapshot) float64 { return s.KVUsage })
	gauge("max_total_num_tokens", "Maximum total number of tokens in the KV cache pool.", func(s *loop.Snapshot) float64 { return float64(s.MaxTokens) })
	gauge("gen_throughput", "The generation throughput (token/s).", func(s *loop.Snapshot) float64 { return s.Throughput })
	gauge("cache_hit_rate", "The prefix cache hit rate.", func(s *loop.Snapshot) float64 { return s.HitRate })
	add(prometheus.CounterValue, "num_retracted_requests_total", "Total number of retracted requests.", func(s *loop.Snapshot) float64 { return float64(s.Preemptions) })
	w.fixed = []prometheus.Metric{s.cacheInfo(labels)}
	return w
}

// cacheInfo is a constant 1 whose labels are the figures.
func (s *SGLangSet) cacheInfo(labels prometheus.Labels) prometheus.Metric {
	desc := prometheus.NewDesc("sglang:cache_config_info", "Information of the cache configuration.", nil, merge(labels, prometheus.Labels{
		"page_size": strconv.Itoa(s.o.BlockSize), "num_pages": strconv.Itoa(s.o.NumBlocks - 1),
	}))
	return prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, 1)
}

// front observes requests. Its methods are for the loop goroutines.
type front struct {
	ttft, itl, e2e, retractions prometheus.Histogram
	snapshots                   []func() loop.Snapshot
}

func newFront(labels prometheus.Labels, r *prometheus.Registry) *front {
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "sglang:" + name, Help: help, ConstLabels: labels, Buckets: buckets})
		r.MustRegister(h)
		return h
	}
	return &front{
		ttft:        histogram("time_to_first_token_seconds", "Histogram of time to first token in seconds.", sglangTTFT),
		itl:         histogram("inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", sglangITL),
		e2e:         histogram("e2e_request_latency_seconds", "Histogram of End-to-end request latency in seconds", sglangE2E),
		retractions: histogram("num_retractions", "Histogram of retraction counts per request.", sglangRetractions),
	}
}

// Token implements loop.Observer.
func (f *front) Token(index int, sinceNs int64) {
	if index == 0 {
		f.ttft.Observe(seconds(sinceNs))
		return
	}
	f.itl.Observe(seconds(sinceNs))
}

// Ended implements loop.Observer. Aborted requests are only counted.
func (f *front) Ended(_ string, _ int, s engine.RequestStats) {
	if s.Outcome != engine.FinishLength {
		return
	}
	f.e2e.Observe(seconds(s.LastToken - s.Arrival))
	f.retractions.Observe(float64(s.Preemptions))
}

// Step implements loop.Observer: SGLang has no series of steps.
func (f *front) Step(int) {}

const cachedTokens = "cached_tokens_total"

// watcher is the front's counters, summed over the ranks.
func (f *front) watcher(labels prometheus.Labels) *watcher {
	w := &watcher{snapshot: f.sum}
	counter := func(name, help string, value func(*loop.Snapshot) int64) {
		own := labels
		if name == cachedTokens { // all from the device: there are no lower tiers
			own = merge(labels, prometheus.Labels{"cache_source": "device"})
		}
		w.series = append(w.series, series{prometheus.NewDesc("sglang:"+name, help, nil, own), prometheus.CounterValue,
			func(s *loop.Snapshot) float64 { return float64(value(s)) }})
	}
	counter("prompt_tokens_total", "Number of prefill tokens processed.", func(s *loop.Snapshot) int64 { return s.PromptTokens })
	counter("generation_tokens_total", "Number of generation tokens processed.", func(s *loop.Snapshot) int64 { return s.GenerationTokens })
	counter(cachedTokens, "Number of cached prompt tokens by source (device/host/storage).", func(s *loop.Snapshot) int64 { return s.PromptTokensCached })
	counter("num_requests_total", "Number of requests processed.", func(s *loop.Snapshot) int64 { return s.FinishedLength })
	counter("num_aborted_requests_total", "Number of requests aborted.", func(s *loop.Snapshot) int64 { return s.FinishedAbort })
	return w
}

func (f *front) sum() (sum loop.Snapshot) {
	for _, snapshot := range f.snapshots {
		s := snapshot()
		sum.PromptTokens += s.PromptTokens
		sum.GenerationTokens += s.GenerationTokens
		sum.PromptTokensCached += s.PromptTokensCached
		sum.FinishedLength += s.FinishedLength
		sum.FinishedAbort += s.FinishedAbort
	}
	return sum
}

var _ loop.Observer = (*front)(nil)

// SGLang's default buckets, in seconds, and in retractions.
var (
	sglangTTFT        = []float64{.1, .2, .4, .6, .8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400}
	sglangE2E         = slices.Concat(sglangTTFT, []float64{600, 1200, 1800, 2400})
	sglangITL         = []float64{.002, .004, .006, .008, .01, .015, .02, .025, .03, .035, .04, .06, .08, .1, .2, .4, .6, .8, 1, 2, 4, 6, 8}
	sglangRetractions = []float64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 75, 100}
)
