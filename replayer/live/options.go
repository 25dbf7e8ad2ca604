package live

import (
	"time"

	"fleetdrill/internal/contract"
	"fleetdrill/internal/lab"
	"fleetdrill/replayer/plan"
	"fleetdrill/replayer/result"
)

const (
	// bootTimeout bounds the start of a fleet; a worker starts in well under a second on an idle core.
	bootTimeout = 60 * time.Second
	// DefaultDrain is how long open requests may take after the last one was sent: as long as a saturated
	// fleet needs for its queue, or they count as errors.
	DefaultDrain = 60 * time.Second
	// lead is between the start of the load and its first request, so that the first bodies are made.
	lead = 250 * time.Millisecond
	// drainEvery is how often the engines' journals are read. Their rings hold 20,000 batches and 524,288
	// block changes: more than ten seconds of the fastest engine.
	drainEvery = time.Second
	// progressEvery is how often progress is told.
	progressEvery = 500 * time.Millisecond
)

// Options say what is replayed and where.
type Options struct {
	Plan *plan.Plan
	// Info is what the caller knows of the replay; Run completes it.
	Info result.Info
	// Fleet is started unless URL is set: one process per worker, and a gateway with GatewayArgs.
	Fleet       lab.FleetSpec
	GatewayArgs []string
	// Exe is the fleetdrill binary; empty is this process's own. Dir takes the logs of the fleet.
	Exe, Dir string
	// URL is the base URL of a running gateway. Workers are the engines behind it whose truth is read; without
	// them nothing is known of placements but what the gateway says.
	URL     string
	Workers []contract.ReadyWorker
	// Drain is how long open requests may take at the end; 0 means DefaultDrain.
	Drain time.Duration
	// Progress is told how far the replay is, from one goroutine; nil is told nothing.
	Progress func(Progress)
}

// Progress is how far a replay is. TTFT and hit ratio are over the requests that ended.
type Progress struct {
	Planned, Sent, Ended, Errors int
	Elapsed                      time.Duration
	// Rate is requests that ended per second of the last interval.
	Rate      float64
	TTFTP50Ms float64
	// Hit is cached over prompt tokens.
	Hit float64
}
