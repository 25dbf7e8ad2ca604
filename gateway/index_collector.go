package gateway

import (
	"github.com/prometheus/client_golang/prometheus"

	"fleetdrill/gateway/index"
	"fleetdrill/gateway/lanes"
)

// indexCollector turns what the index and the event lanes count into series when it is scraped.
type indexCollector struct {
	index index.Index
	lanes *lanes.Pool
}

// Describe sends nothing: which series there are depends on the index.
func (c *indexCollector) Describe(chan<- *prometheus.Desc) {}

// Collect sends the series.
func (c *indexCollector) Collect(out chan<- prometheus.Metric) {
	send := func(name, help string, kind prometheus.ValueType, v float64) {
		out <- prometheus.MustNewConstMetric(prometheus.NewDesc("fleetdrill_gateway_"+name, help, nil, nil), kind, v)
	}
	s := c.index.Stats()
	send("index_memberships", "Blocks held, over all holders.", prometheus.GaugeValue, float64(s.Memberships))
	send("index_places", "Distinct chain positions that exist.", prometheus.GaugeValue, float64(s.Nodes))
	send("index_refused_blocks_total", "Blocks of stores that a limit of the index kept out.", prometheus.CounterValue, float64(s.Refused))
	send("index_shed_blocks_total", "Memberships given up to stay below the index's bound.", prometheus.CounterValue, float64(s.Shed))
	if b, ok := c.index.(index.Bounded); ok {
		send("index_bytes", "What the index's live parts take.", prometheus.GaugeValue, float64(b.Bytes()))
	}
	l := c.lanes.Stats()
	send("event_lanes", "Event streams that may be applied at once.", prometheus.GaugeValue, float64(l.Lanes))
	send("event_lane_turns_total", "Steps of event streams that had a lane.", prometheus.CounterValue, float64(l.Turns))
	send("event_lane_waits_total", "Steps that found no lane free.", prometheus.CounterValue, float64(l.Waits))
	send("event_lane_wait_seconds_total", "Time spent waiting for a lane.", prometheus.CounterValue, l.Wait.Seconds())
	send("event_lane_busy_seconds_total", "Time spent on lanes.", prometheus.CounterValue, l.Busy.Seconds())
	send("event_lane_waiting", "Event streams that wait for a lane now.", prometheus.GaugeValue, float64(l.Waiting))
	send("event_lane_waiting_max", "The most that ever waited.", prometheus.GaugeValue, float64(l.MaxWaiting))
}
