package fleet

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"fleetdrill/internal/clock"
	"fleetdrill/internal/contract"
)

// Specs are the registered workers, in the order of registration.
func (f *Fleet) Specs() []contract.WorkerSpec {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]contract.WorkerSpec, len(f.core.workers))
	for i, w := range f.core.workers {
		out[i] = w.Spec
	}
	return out
}

// Workers is the fleet as GET /routing/state shows it, all workers at one instant; the ranks' states are
// read right after it.
func (f *Fleet) Workers() (monoNs int64, out []contract.RoutingWorker) {
	f.mu.Lock()
	now := clock.MonoNs()
	out = make([]contract.RoutingWorker, len(f.core.workers))
	streams := make([][]Stream, len(out))
	for i, w := range f.core.workers {
		out[i] = f.core.state(now, w)
		streams[i] = f.members[w].streams
	}
	f.mu.Unlock()
	for i := range out {
		out[i].Ranks = make([]contract.RoutingRank, 0, len(streams[i]))
		for _, s := range streams[i] {
			out[i].Ranks = append(out[i].Ranks, s.State(now))
		}
	}
	return now, out
}

func (c *Core) state(now int64, w *Worker) contract.RoutingWorker {
	s := contract.RoutingWorker{
		ID: w.ID, URL: w.URL, Phase: w.phase, Breaker: w.breaker.name(), Routable: c.routable(now, w),
		Inflight: int64(len(w.requests)), Dispatches: w.dispatches, Failures: w.failures,
		Thin: c.thin(now, w), Diverted: w.warmth.diverted,
		LastContactMs: ms(now - max(w.lastContact, w.lastByte.Load())),
	}
	if reason := w.veto(); reason != "" {
		s.Veto = &contract.Veto{Reason: reason, SinceMonoNs: w.vetoSince()}
	}
	if w.load.have {
		r := &w.load.record
		s.Load = &contract.RoutingLoad{AgeMs: ms(now - w.load.fresh), Running: r.Running, Waiting: r.Waiting,
			WaitingUncachedTokens: r.Uncached, TokenUsage: r.Usage}
	}
	return s
}

func ms(ns int64) float64 { return float64(ns) / float64(time.Millisecond) }

// WriteDump writes every membership of one rank, as JSON lines cut at one sequence number. The error is
// ErrUnknownWorker, or the writer's.
func (f *Fleet) WriteDump(out io.Writer, worker string, rank int) error {
	f.mu.Lock()
	var streams []Stream
	if w := f.core.byID[worker]; w != nil {
		streams = f.members[w].streams
	}
	f.mu.Unlock()
	for _, s := range streams {
		if s.State(clock.MonoNs()).Rank == rank {
			return s.WriteDump(out)
		}
	}
	return fmt.Errorf("dumping %s/%d: %w", worker, rank, ErrUnknownWorker)
}

// watchQueue is how many transitions a slow watcher may lag behind, enough for a fleet of 1,024 going
// away at once.
const watchQueue = 4096

// Watch returns every transition from now on, until stop is called. A watcher that lags too far misses
// transitions, counted in missed.
func (f *Fleet) Watch(missed *atomic.Int64) (news <-chan contract.RoutingEvent, stop func()) {
	ch := make(chan contract.RoutingEvent, watchQueue)
	f.watchMu.Lock()
	f.watchers[ch] = missed
	f.watchMu.Unlock()
	return ch, func() {
		f.watchMu.Lock()
		delete(f.watchers, ch)
		f.watchMu.Unlock()
	}
}

func (f *Fleet) announce(t contract.RoutingEvent) {
	f.log.Info("worker changed", "worker", t.Worker, "what", t.Kind, "from", t.From, "to", t.To)
	f.watchMu.Lock()
	defer f.watchMu.Unlock()
	for ch := range f.watchers {
		select {
		case ch <- t:
		default:
			f.watchers[ch].Add(1)
		}
	}
}
