package proxy

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the request path's own series; the children are looked up once, since a lookup by label
// costs more than the observation.
type metrics struct {
	ttft, decision prometheus.Histogram
	byClass        [6]prometheus.Counter // by hundreds of the status
	byFailure      [status + 1]prometheus.Counter
}

var failureNames = [status + 1]string{none: "", clientGone: "client_gone", vetoed: "vetoed", refused: "refused",
	broken: "broken", timedOut: "timed_out", status: "status"}

func newMetrics(reg *prometheus.Registry) *metrics {
	m := &metrics{
		ttft: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "fleetdrill_gateway_ttft_seconds",
			Help:    "Time from a streamed request's arrival to the first byte passed on.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 16)}),
		decision: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "fleetdrill_gateway_decision_seconds",
			Help:    "Time to hash a prompt, look it up and choose a worker, tokenizing not included.",
			Buckets: prometheus.ExponentialBuckets(1e-6, 2, 16)}),
	}
	answers := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fleetdrill_gateway_answers_total",
		Help: "Complete answers by class of status, the gateway's own refusals included."}, []string{"class"})
	failures := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fleetdrill_gateway_failures_total",
		Help: "Requests whose last attempt failed, by how."}, []string{"how"})
	reg.MustRegister(m.ttft, m.decision, answers, failures)
	for i := 1; i < len(m.byClass); i++ {
		m.byClass[i] = answers.WithLabelValues(strconv.Itoa(i) + "xx")
	}
	for f := clientGone; f <= status; f++ {
		m.byFailure[f] = failures.WithLabelValues(failureNames[f])
	}
	return m
}

func (m *metrics) count(code int) {
	if class := code / 100; class >= 1 && class <= 5 {
		m.byClass[class].Inc()
	}
}

func (m *metrics) fail(f failure) { m.byFailure[f].Inc() }
