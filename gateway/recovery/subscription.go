package recovery

import (
	"io"
	"log/slog"

	"fleetdrill/gateway/index"
	"fleetdrill/internal/contract"
)

// Source is one (worker, rank) to follow.
type Source struct {
	Worker string
	Rank   int
	// Events and Replay are endpoints, tcp://host:port, of this very rank. Without a Replay, gaps and
	// reconnects can be noticed but not repaired.
	Events, Replay string
	// Topic is the prefix to subscribe to; empty takes everything.
	Topic string
	// Holder is the id under which the index knows this rank.
	Holder index.Holder
	// BlockSize is the engine's block size in tokens; 0 learns it from the first store.
	BlockSize int
}

// Deps are what a Subscription works with.
type Deps struct {
	Residency *index.Residency
	// Log receives each transition once; nil discards.
	Log *slog.Logger
	// OnBatch is called from the subscription's goroutine for every new live batch (contact with the
	// engine), with its arrival in monotonic ns; never for a replayed or repeated one. May be nil.
	OnBatch func(monoNs int64)
	// Busy reports whether requests of ours are in flight on this worker, so that silence is suspicious.
	// Called from the subscription's goroutine; nil means never.
	Busy func() bool
}

// Subscription follows one (worker, rank). Its methods are safe for concurrent use.
type Subscription struct{}

// Start subscribes and keeps the holder's index equal to what the engine announces, until Close.
func Start(s Source, d Deps) *Subscription { return nil }

// State is a snapshot at now, in monotonic ns; counts, digest and sequence number belong together.
func (s *Subscription) State(now int64) contract.RoutingRank { return contract.RoutingRank{} }

// WriteDump writes the rank's memberships as JSON lines, a contract.DumpHead and contract.DumpBlocks, all
// cut at one sequence number.
func (s *Subscription) WriteDump(w io.Writer) error { return nil }

// Nudge says that the worker was heard on another path: waiting to reconnect ends early.
func (s *Subscription) Nudge() {}

// WorkerDead says that liveness found the worker dead. Without a replay source the next connection is
// then a restarted engine.
func (s *Subscription) WorkerDead() {}

// Close ends the subscription, waits for its goroutines and drops the holder from the index.
func (s *Subscription) Close() {}
