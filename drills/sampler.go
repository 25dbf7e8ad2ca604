package drills

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/shirou/gopsutil/v3/process"

	"fleetdrill/drills/predicate"
	"fleetdrill/drills/record"
	"fleetdrill/internal/clock"
	"fleetdrill/internal/contract"
	"fleetdrill/internal/lab"
)

// sampler reads the fleet once per period and keeps every sample. A slot that comes late is recorded
// with its lag, and one that was missed altogether stays a hole: the judge makes both unknown rather
// than flattering the gateway.
type sampler struct {
	period  time.Duration
	fleet   *lab.Fleet
	gateway *lab.Line
	log     *slog.Logger
	memory  []procHandle
	engines []*engineView
	reads   sync.WaitGroup // readings of engines that are out

	mu      sync.Mutex // guards samples and owned
	samples []record.Sample
	owned   map[string]bool // workers whose truth belongs to a fault now
	fresh   chan struct{}   // closed and replaced at each new sample

	cancel context.CancelFunc
	done   chan struct{}
}

// procHandle is a process whose memory is sampled under a key.
type procHandle struct {
	key  string
	proc *process.Process
}

func startSampler(ctx context.Context, period time.Duration, f *lab.Fleet, g *lab.Gateway, log *slog.Logger) (*sampler, error) {
	line, err := lab.NewLine(g.Admin)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &sampler{period: period, fleet: f, gateway: line, log: log, owned: map[string]bool{},
		fresh: make(chan struct{}), cancel: cancel, done: make(chan struct{})}
	s.watchMemory("gateway_rss", g.Child.ID().PID)
	for _, w := range f.Workers {
		s.watchMemory(key("worker_rss", w.ID), w.Child.ID().PID)
		v, err := newEngineView(w)
		if err != nil {
			cancel()
			return nil, err
		}
		s.engines = append(s.engines, v)
	}
	go s.run(ctx)
	return s, nil
}

func (s *sampler) watchMemory(key string, pid int) {
	// Handles are kept: making one costs more than reading it.
	p, err := process.NewProcess(int32(pid))
	if err != nil {
		s.log.Warn("process memory is not sampled", "series", key, "err", err)
		return
	}
	s.memory = append(s.memory, procHandle{key, p})
}

// stop ends sampling and waits for it.
func (s *sampler) stop() {
	s.cancel()
	<-s.done
	s.reads.Wait()
	s.gateway.Close()
	for _, v := range s.engines {
		v.line.Close()
	}
}

// own says whether a worker's truth belongs to a fault: its series are then absent rather than
// unreadable.
func (s *sampler) own(worker string, owned bool) {
	s.mu.Lock()
	s.owned[worker] = owned
	s.mu.Unlock()
}

// snapshot is every sample so far; the slice is not written again.
func (s *sampler) snapshot() []record.Sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.samples[:len(s.samples):len(s.samples)]
}

// next is closed when a sample newer than those of the last snapshot exists.
func (s *sampler) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fresh
}

func (s *sampler) run(ctx context.Context) {
	defer close(s.done)
	start := clock.MonoNs()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for k := 0; ; k++ {
		due := start + int64(k)*int64(s.period)
		now := clock.MonoNs()
		if late := now - due; late >= int64(s.period) {
			// Slots that are over are skipped, not caught up: a burst of samples would describe one
			// instant several times.
			k += int(late / int64(s.period))
			due = start + int64(k)*int64(s.period)
		}
		timer.Reset(time.Duration(max(0, due-now)))
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		sample := s.take(ctx, k, due)
		if ctx.Err() != nil {
			return
		}
		s.mu.Lock()
		s.samples = append(s.samples, sample)
		close(s.fresh)
		s.fresh = make(chan struct{})
		s.mu.Unlock()
	}
}

// reading is what one sample is folded from.
type reading struct {
	state   *contract.RoutingState // nil when unread
	engines map[string]engineReading
	owned   map[string]bool
	links   map[string]linkCounts
	memory  map[string]float64
}

// linkCounts are the counters of a worker's HTTP link.
type linkCounts struct{ attempts, probes int }

// take reads everything once. SentNs and ReceivedNs bracket the routing state, which is what the rules
// are about. Engines are read right after it: what a gateway has applied has then been announced for
// sure, and the two can be compared at the gateway's sequence number.
func (s *sampler) take(ctx context.Context, k int, due int64) record.Sample {
	out := record.Sample{K: k, SentNs: clock.MonoNs()}
	out.LagNs = out.SentNs - due
	r := reading{links: map[string]linkCounts{}, owned: s.ownedNow()}
	stateCtx, cancel := context.WithTimeout(ctx, 2*s.period)
	state, err := s.gateway.RoutingState(stateCtx)
	cancel()
	out.ReceivedNs = clock.MonoNs()
	if err == nil {
		r.state = &state
	} else if ctx.Err() == nil {
		s.log.Debug("routing state not read", "k", k, "err", err)
	}
	for _, w := range s.fleet.Workers {
		st := w.HTTP.Stats()
		r.links[w.ID] = linkCounts{attempts: st.Attempts, probes: st.Probes}
	}
	if k%predicate.MemoryEvery == 0 {
		r.memory = s.readMemory()
	}
	r.engines = s.readEngines(ctx, k, out.SentNs+int64(s.period)*3/4, r)
	out.Values, out.Text, out.Absent = fold(r)
	return out
}

// readEngines reads every engine that no fault owns, side by side, and returns the answers that came by
// a deadline: a late one must not delay the next sample.
func (s *sampler) readEngines(ctx context.Context, k int, deadlineNs int64, r reading) map[string]engineReading {
	done := make(chan struct{}, len(s.engines))
	asked := 0
	for _, v := range s.engines {
		if r.owned[v.worker.ID] || !v.begin() {
			continue
		}
		asked++
		gateway := nextSeqs(r.state, v.worker.ID)
		s.reads.Go(func() {
			v.read(ctx, k, gateway)
			done <- struct{}{}
		})
	}
	late := time.NewTimer(time.Duration(deadlineNs - clock.MonoNs()))
	defer late.Stop()
wait:
	for range asked {
		select {
		case <-done:
		case <-late.C:
			break wait
		}
	}
	out := make(map[string]engineReading, len(s.engines))
	for _, v := range s.engines {
		if e, ok := v.reading(k); ok {
			out[v.worker.ID] = e
		}
	}
	return out
}

// nextSeqs are the sequence numbers at which the gateway stands with a worker, by rank.
func nextSeqs(state *contract.RoutingState, worker string) []int64 {
	if state == nil {
		return nil
	}
	for _, w := range state.Workers {
		if w.ID != worker {
			continue
		}
		out := make([]int64, len(w.Ranks))
		for i, r := range w.Ranks {
			out[i] = r.NextSeq
		}
		return out
	}
	return nil
}

// ownedNow are the workers whose truth belongs to a fault.
func (s *sampler) ownedNow() map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	owned := make(map[string]bool, len(s.owned))
	for w, yes := range s.owned {
		if yes {
			owned[w] = true
		}
	}
	return owned
}

func (s *sampler) readMemory() map[string]float64 {
	out := map[string]float64{}
	for _, h := range s.memory {
		if m, err := h.proc.MemoryInfo(); err == nil {
			out[h.key] = float64(m.RSS)
		}
	}
	return out
}
