package metrics

import (
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"fleetdrill/mockworker/loop"
)

// watcher turns a snapshot into series at the moment of a scrape.
type watcher struct {
	snapshot func() loop.Snapshot
	series   []series
	fixed    []prometheus.Metric
	counters []counterName
	since    time.Time // of the counters; zero is untold
}

// counterName is what a counter is called without its _total, for the series that says since when.
type counterName struct {
	name, help string
	labels     prometheus.Labels
}

// series is one counter or gauge and the figure it shows.
type series struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*loop.Snapshot) float64
}

func (s *series) metric(value float64, since time.Time) prometheus.Metric {
	if s.kind == prometheus.CounterValue && !since.IsZero() {
		return prometheus.MustNewConstMetricWithCreatedTimestamp(s.desc, s.kind, value, since)
	}
	return prometheus.MustNewConstMetric(s.desc, s.kind, value)
}

var _ prometheus.Collector = (*watcher)(nil)

func newWatcher(o Options, engine string, snapshot func() loop.Snapshot) *watcher {
	w := &watcher{snapshot: snapshot}
	labels := prometheus.Labels{"engine": engine, "model_name": o.Model}
	add := func(kind prometheus.ValueType, name, help string, extra prometheus.Labels, value func(*loop.Snapshot) float64) {
		w.series = append(w.series, series{prometheus.NewDesc("vllm:"+name, help, nil, merge(labels, extra)), kind, value})
		if kind == prometheus.CounterValue {
			w.counters = append(w.counters, counterName{"vllm:" + strings.TrimSuffix(name, "_total"), help, merge(labels, extra)})
		}
	}
	gauge := func(name, help string, value func(*loop.Snapshot) float64) {
		add(prometheus.GaugeValue, name, help, nil, value)
	}
	counter := func(name, help string, value func(*loop.Snapshot) float64) {
		add(prometheus.CounterValue, name, help, nil, value)
	}
	gauge("num_requests_running", "Number of requests in model execution batches.", func(s *loop.Snapshot) float64 { return float64(s.Running) })
	gauge("num_requests_waiting", "Number of requests waiting to be processed.", func(s *loop.Snapshot) float64 { return float64(s.Waiting) })
	const byReason = "Number of waiting requests by reason."
	add(prometheus.GaugeValue, "num_requests_waiting_by_reason", byReason, prometheus.Labels{"reason": "capacity"},
		func(s *loop.Snapshot) float64 { return float64(s.Waiting - s.WaitingDeferred) })
	add(prometheus.GaugeValue, "num_requests_waiting_by_reason", byReason, prometheus.Labels{"reason": "deferred"},
		func(s *loop.Snapshot) float64 { return float64(s.WaitingDeferred) })
	for level, state := range []string{"awake", "weights_offloaded", "discard_all"} {
		add(prometheus.GaugeValue, "engine_sleep_state", "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake.",
			prometheus.Labels{"sleep_state": state}, func(s *loop.Snapshot) float64 { return float64(btoi(s.SleepLevel == level)) })
	}
	gauge("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", func(s *loop.Snapshot) float64 { return s.KVUsage })
	counter("prefix_cache_queries_total", "Prefix cache queries, in terms of number of queried tokens.", func(s *loop.Snapshot) float64 { return float64(s.PrefixQueries) })
	counter("prefix_cache_hits_total", "Prefix cache hits, in terms of number of cached tokens.", func(s *loop.Snapshot) float64 { return float64(s.PrefixHits) })
	counter("external_prefix_cache_queries_total", "External prefix cache queries, in terms of number of queried tokens.", func(s *loop.Snapshot) float64 { return float64(s.ExternalQueries) })
	counter("external_prefix_cache_hits_total", "External prefix cache hits, in terms of number of cached tokens.", func(s *loop.Snapshot) float64 { return float64(s.ExternalHits) })
	none := func(*loop.Snapshot) float64 { return 0 } // what a text engine has none of
	counter("mm_cache_queries_total", "Multi-modal cache queries, in terms of number of queried items.", none)
	counter("mm_cache_hits_total", "Multi-modal cache hits, in terms of number of cached items.", none)
	counter("num_preemptions_total", "Cumulative number of preemption from the engine.", func(s *loop.Snapshot) float64 { return float64(s.Preemptions) })
	counter("prompt_tokens_total", "Number of prefill tokens processed.", func(s *loop.Snapshot) float64 { return float64(s.PromptTokens) })
	const bySource = "Number of prompt tokens by source."
	add(prometheus.CounterValue, "prompt_tokens_by_source_total", bySource, prometheus.Labels{"source": "local_compute"},
		func(s *loop.Snapshot) float64 { return float64(s.PromptTokens - s.PromptTokensCached) })
	add(prometheus.CounterValue, "prompt_tokens_by_source_total", bySource, prometheus.Labels{"source": "local_cache_hit"},
		func(s *loop.Snapshot) float64 { return float64(max(0, s.PromptTokensCached-s.ExternalHits)) })
	add(prometheus.CounterValue, "prompt_tokens_by_source_total", bySource, prometheus.Labels{"source": "external_kv_transfer"},
		func(s *loop.Snapshot) float64 { return float64(min(s.PromptTokensCached, s.ExternalHits)) })
	counter("prompt_tokens_cached_total", "Number of cached prompt tokens (local + external).", func(s *loop.Snapshot) float64 { return float64(s.PromptTokensCached) })
	counter("admission_rejections_total", "Number of requests rejected at admission.", func(s *loop.Snapshot) float64 { return float64(s.Refused) })
	counter("generation_tokens_total", "Number of generation tokens processed.", func(s *loop.Snapshot) float64 { return float64(s.GenerationTokens) })
	for _, reason := range []string{"stop", "length", "abort", "error"} {
		add(prometheus.CounterValue, "request_success_total", "Count of successfully processed requests.",
			prometheus.Labels{"finished_reason": reason}, func(s *loop.Snapshot) float64 { return float64(finished(s, reason)) })
	}
	w.fixed = []prometheus.Metric{configInfo(o, engine)}
	return w
}

// finished is how many requests ended for a reason; mock engines never stop by themselves and never fail.
func finished(s *loop.Snapshot, reason string) int64 {
	switch reason {
	case "length":
		return s.FinishedLength
	case "abort":
		return s.FinishedAbort
	}
	return 0
}

// configInfo is vllm:cache_config_info, whose labels are the figures and whose value is always 1.
func configInfo(o Options, engine string) prometheus.Metric {
	desc := prometheus.NewDesc("vllm:cache_config_info", "Information of the LLMEngine CacheConfig", nil, prometheus.Labels{
		"engine":                engine,
		"block_size":            strconv.Itoa(o.BlockSize),
		"num_gpu_blocks":        strconv.Itoa(o.NumBlocks),
		"enable_prefix_caching": pythonBool(o.Caching), "prefix_caching_hash_algo": o.HashAlgo,
		"cache_dtype": "auto", "sliding_window": "None", "cpu_offload_gb": "0",
	})
	return prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, 1)
}

// adapterInfo is vllm:lora_requests_info, whose labels are the state and whose value is the time of it.
type adapterInfo struct {
	most     int
	snapshot func() loop.Snapshot
}

var adapterInfoDesc = prometheus.NewDesc("vllm:lora_requests_info", "Running stats on lora requests.",
	[]string{"max_lora", "running_lora_adapters", "waiting_lora_adapters"}, nil)

// Describe implements prometheus.Collector.
func (a *adapterInfo) Describe(ch chan<- *prometheus.Desc) { ch <- adapterInfoDesc }

// Collect implements prometheus.Collector.
func (a *adapterInfo) Collect(ch chan<- prometheus.Metric) {
	s := a.snapshot()
	ch <- prometheus.MustNewConstMetric(adapterInfoDesc, prometheus.GaugeValue, unixSeconds(time.Now()),
		strconv.Itoa(a.most), s.RunningAdapters, s.WaitingAdapters)
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func pythonBool(b bool) string {
	if b {
		return "True"
	}
	return "False"
}

func merge(a, b prometheus.Labels) prometheus.Labels {
	m := prometheus.Labels{}
	for k, v := range a {
		m[k] = v
	}
	for k, v := range b {
		m[k] = v
	}
	return m
}

// Describe implements prometheus.Collector.
func (w *watcher) Describe(ch chan<- *prometheus.Desc) {
	for _, s := range w.series {
		ch <- s.desc
	}
	for _, m := range w.fixed {
		ch <- m.Desc()
	}
}

// Collect implements prometheus.Collector.
func (w *watcher) Collect(ch chan<- prometheus.Metric) {
	snap := w.snapshot()
	for _, s := range w.series {
		if snap.LoadAbsent && s.kind == prometheus.GaugeValue {
			continue
		}
		ch <- s.metric(s.value(&snap), w.since)
	}
	for _, m := range w.fixed {
		ch <- m
	}
}
