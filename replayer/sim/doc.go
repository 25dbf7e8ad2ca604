// Package sim replays requests in simulated time: the engine core of the mock worker and the gateway's own
// normaliser, recovery cursor, index, fleet core, policy and decision, in one process on a virtual clock.
//
// It is the one place that joins mockworker and gateway; live they meet only on the wire. What lies between
// them here is modelled: the time a request, a token, a ping and an event take. Nothing is decided here that
// a live fleet decides elsewhere.
//
// The one idea to know: everything that happens is an entry of one heap, ordered by time, then kind, worker,
// rank and number, and the loop that takes the entries is the only one that decides. Goroutines only compute
// prompts and hashes ahead of time, which depend on nothing. So equal configurations give equal results to
// the byte, whatever the machine does meanwhile.
//
// Not here: reading traces (replayer/trace), figures and tables (replayer/load), flags (internal/cli).
package sim
