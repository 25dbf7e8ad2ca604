package gateway

import (
	"github.com/prometheus/client_golang/prometheus"

	"fleetdrill/gateway/fleet"
)

// fleetCollector turns the fleet's snapshot into series when it is scraped, so that nothing has to be
// kept up between scrapes.
type fleetCollector struct{ fleet *fleet.Fleet }

func workerDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("fleetdrill_gateway_worker_"+name, help, []string{"worker"}, nil)
}

// Describe sends nothing: the series depend on the registry of workers.
func (c *fleetCollector) Describe(chan<- *prometheus.Desc) {}

// Collect sends each worker's series.
func (c *fleetCollector) Collect(out chan<- prometheus.Metric) {
	routable := workerDesc("routable", "1 while a request may be placed on the worker.")
	inflight := workerDesc("inflight", "Requests placed on the worker and not ended.")
	dispatches := workerDesc("dispatches_total", "Placements on the worker since its registration.")
	failures := workerDesc("failures_total", "Failures charged to the worker since its registration.")
	blocks := workerDesc("blocks", "Blocks that the index holds for the worker, all ranks.")
	_, workers := c.fleet.Workers()
	for _, w := range workers {
		send := func(d *prometheus.Desc, kind prometheus.ValueType, v float64) {
			out <- prometheus.MustNewConstMetric(d, kind, v, w.ID)
		}
		up, held := 0.0, 0
		if w.Routable {
			up = 1
		}
		for _, r := range w.Ranks {
			held += r.Blocks
		}
		send(routable, prometheus.GaugeValue, up)
		send(inflight, prometheus.GaugeValue, float64(w.Inflight))
		send(dispatches, prometheus.CounterValue, float64(w.Dispatches))
		send(failures, prometheus.CounterValue, float64(w.Failures))
		send(blocks, prometheus.GaugeValue, float64(held))
	}
}
