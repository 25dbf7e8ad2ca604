package sim

import (
	"fleetdrill/internal/contract"
	"fleetdrill/replayer/result"
)

// Result is a simulated run.
type Result struct {
	// Requests are those of the plan, in its order.
	Requests []result.Request
	// WorkerIDs are all workers.
	WorkerIDs []string
	// KVBlocks and BlockSize (tokens) are those of one engine, Hash what it hashed blocks with.
	KVBlocks, BlockSize int
	Hash                string
	// Preemptions and Steps are the engines' own counts, Batches the event batches that they published.
	Preemptions, Steps, Batches int64
	// VirtualNs is from the start of the replay to the end of its last request.
	VirtualNs int64
	// Transitions are what the fleet announced: registrations, phases, vetoes. Times are ns after the start
	// of the replay, negative before it.
	Transitions []contract.RoutingEvent
	// Ranks are the gateway's view of each worker's events at the end.
	Ranks []contract.RoutingRank
	// Counters are the gateway's.
	Counters contract.RoutingCounters
}
