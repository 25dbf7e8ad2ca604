package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"fleetdrill/gateway/index"
	"fleetdrill/gateway/policy"
	"fleetdrill/internal/clock"
	"fleetdrill/internal/contract"
)

const (
	tickEvery = 25 * time.Millisecond
	// probeTimeout bounds a ping or poll; it equals the stall time's default, after which an answer no
	// longer matters for the verdict.
	probeTimeout = 2 * time.Second
	// streamsEvery is how many ticks pass between looks at the event streams' states.
	streamsEvery = 20
)

// ErrUnknownWorker says that an id or rank is not registered.
var ErrUnknownWorker = errors.New("no such worker or rank")

// Stream is one rank's event subscription, as far as the fleet is concerned.
type Stream interface {
	State(now int64) contract.RoutingRank
	WriteDump(w io.Writer) error
	Nudge()
	WorkerDead()
	// Handicap is called with the whole set of handicaps that are on (contract.Handicaps).
	Handicap(on []string)
	Close()
}

// Hooks tie an event stream to its worker: OnBatch is to be called for every new live batch, Busy says
// whether requests of ours are on the worker, so that quiet means something.
type Hooks struct {
	OnBatch func(monoNs int64)
	Busy    func() bool
}

// Options of a Fleet. Subscribe may be nil: then no cache is known.
type Options struct {
	Timing Timing
	Picker *policy.Picker
	// Subscribe starts the event stream of one rank. It returns nil for a worker without events.
	Subscribe func(spec contract.WorkerSpec, rank int, h index.Holder, hooks Hooks) Stream
	// Models asks workers which models they serve, to tell adapters from base models; without it every name
	// is a base model's.
	Models bool
	Log    *slog.Logger
}

// Fleet is the shell around Core: it owns the lock, the clock, the connections and the goroutines. All
// its methods are safe for concurrent use.
type Fleet struct {
	opts   Options
	log    *slog.Logger
	prober *prober
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup // the loop, pings and polls

	mu        sync.Mutex // guards core, the picker and all below
	core      *Core
	free      []index.Holder
	next      index.Holder
	members   map[*Worker]*member // of registered workers
	handicaps []string            // switched on

	watchMu  sync.Mutex                                   // guards watchers; never held together with mu
	watchers map[chan contract.RoutingEvent]*atomic.Int64 // counts what a watcher missed
}

// member is what the shell keeps of a worker.
type member struct {
	transport *http.Transport
	streams   []Stream
	// nextModels is when the worker is next asked for its models, asking that it is being asked; under mu.
	nextModels int64
	asking     bool
}

// New starts a fleet without workers. Close ends it.
func New(o Options) *Fleet {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	f := &Fleet{opts: o, log: o.Log, prober: newProber(probeTimeout), core: NewCore(o.Timing),
		members: map[*Worker]*member{}, watchers: map[chan contract.RoutingEvent]*atomic.Int64{}}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	f.wg.Add(1)
	go f.loop()
	return f
}

// Close stops judging, ends every event stream and connection, and waits.
func (f *Fleet) Close() {
	f.cancel()
	f.wg.Wait()
	f.mu.Lock()
	members := f.members
	f.members = map[*Worker]*member{}
	f.mu.Unlock()
	for _, m := range members {
		m.close()
	}
	f.prober.close()
}

func (m *member) handicap(on []string) {
	for _, s := range m.streams {
		s.Handicap(on)
	}
}

func (m *member) close() {
	for _, s := range m.streams {
		s.Close()
	}
	m.transport.CloseIdleConnections()
}

func (f *Fleet) loop() {
	defer f.wg.Done()
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	for n := 0; ; n++ {
		select {
		case <-f.ctx.Done():
			return
		case <-ticker.C:
		}
		if n%streamsEvery == 0 {
			f.lookAtStreams()
		}
		if n%modelsTicks == 0 {
			f.lookAtModels()
		}
		f.do(func(now int64) { f.core.Tick(now) })
	}
}

// lookAtStreams notes which workers have a live event stream, since only that makes silence of it telling,
// and how much the index holds for each.
func (f *Fleet) lookAtStreams() {
	now := clock.MonoNs()
	blocks := map[*Worker]int{}
	for w, streams := range f.streams() {
		live := false
		for _, s := range streams {
			state := s.State(now)
			live = live || state.Stream == contract.StreamLive
			blocks[w] += state.Blocks
		}
		w.SetEventsLive(live)
	}
	f.do(func(now int64) {
		f.core.Weigh(now, func(w *Worker) (int, bool) { n, known := blocks[w]; return n, known })
	})
}

func (f *Fleet) streams() map[*Worker][]Stream {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make(map[*Worker][]Stream, len(f.members))
	for w, m := range f.members {
		out[w] = m.streams
	}
	return out
}

// do runs fn on the core under the lock and then carries out what it decided.
func (f *Fleet) do(fn func(now int64)) {
	f.mu.Lock()
	fn(clock.MonoNs())
	actions := f.core.Take()
	f.mu.Unlock()
	for _, a := range actions {
		f.act(a)
	}
}

func (f *Fleet) act(a Action) {
	switch a.Kind {
	case Ping:
		f.spawn(func() { f.ping(a.Worker) })
	case Poll:
		f.spawn(func() { f.poll(a.Worker) })
	case EndRequest:
		a.Request.Stop(a.Cause)
	case Died, Cut, Contacted:
		f.tell(a)
	case Changed:
		f.announce(a.Transition)
	}
}

// spawn runs fn unless the fleet is closing.
func (f *Fleet) spawn(fn func()) {
	if f.ctx.Err() != nil {
		return
	}
	f.wg.Go(fn)
}

func (f *Fleet) ping(w *Worker) {
	sent := clock.MonoNs()
	result, status := f.prober.ping(f.ctx, w.URL)
	if f.ctx.Err() == nil {
		f.do(func(now int64) { f.core.PingDone(now, sent, w, result, status) })
	}
}

func (f *Fleet) poll(w *Worker) {
	sent := clock.MonoNs()
	answered, record, err := f.prober.poll(f.ctx, w.URL)
	if f.ctx.Err() != nil {
		return
	}
	if err != nil {
		f.log.Debug("load poll", "worker", w.ID, "err", err)
	}
	f.do(func(now int64) { f.core.PollDone(now, sent, w, answered, record) })
}

// tell passes a verdict on to the worker's connections and event streams.
func (f *Fleet) tell(a Action) {
	f.mu.Lock()
	m := f.members[a.Worker]
	if m != nil && a.Kind == Died {
		m.nextModels = 0 // what comes back may be another engine
	}
	f.mu.Unlock()
	if m == nil {
		return
	}
	if a.Kind != Contacted {
		m.transport.CloseIdleConnections()
	}
	for _, s := range m.streams {
		switch a.Kind {
		case Died:
			s.WorkerDead()
		case Contacted:
			s.Nudge()
		}
	}
}

// Add registers a worker, which must be normalized, and starts its event streams.
func (f *Fleet) Add(spec contract.WorkerSpec) error {
	ranks := 1
	if spec.KVEvents != nil {
		ranks = max(1, spec.KVEvents.Ranks)
	}
	m := &member{}
	var w *Worker
	var err error
	f.do(func(now int64) {
		holders := f.takeHolders(ranks)
		if w, err = f.core.Add(now, spec, holders); err != nil {
			f.free = append(f.free, holders...)
			return
		}
		m.transport = newTransport(&w.conns)
		f.members[w] = m
	})
	if err != nil {
		return err
	}
	if f.opts.Subscribe == nil {
		return nil
	}
	hooks := Hooks{OnBatch: func(at int64) { f.EventBatch(w, at) }, Busy: func() bool { return w.held.Load() > 0 }}
	streams := make([]Stream, 0, ranks)
	for rank, h := range w.Holders {
		if s := f.opts.Subscribe(spec, rank, h, hooks); s != nil {
			streams = append(streams, s)
		}
	}
	return f.keepStreams(w, m, streams)
}

// keepStreams hands the started streams to the member, or closes them when the worker was removed or
// the fleet closed meanwhile.
func (f *Fleet) keepStreams(w *Worker, m *member, streams []Stream) error {
	f.mu.Lock()
	kept := f.members[w] == m
	if kept {
		m.streams = streams
		m.handicap(f.handicaps)
	}
	f.mu.Unlock()
	if kept {
		return nil
	}
	for _, s := range streams {
		s.Close()
	}
	return fmt.Errorf("registering worker %q: removed meanwhile", w.ID)
}

// takeHolders gives out n holder ids; the caller holds mu.
func (f *Fleet) takeHolders(n int) []index.Holder {
	out := make([]index.Holder, 0, n)
	for len(out) < n {
		if k := len(f.free); k > 0 {
			out = append(out, f.free[k-1])
			f.free = f.free[:k-1]
			continue
		}
		out = append(out, f.next)
		f.next++
	}
	return out
}

// Remove takes a worker out; its running requests go on. The error is ErrUnknownWorker.
func (f *Fleet) Remove(id string) error {
	var w *Worker
	var m *member
	f.do(func(now int64) {
		if w = f.core.Remove(now, id); w != nil {
			m = f.members[w]
			delete(f.members, w)
		}
	})
	if w == nil {
		return fmt.Errorf("removing worker %q: %w", id, ErrUnknownWorker)
	}
	m.close()
	// Only now, with its streams closed and their memberships dropped, may a holder be used again.
	f.mu.Lock()
	f.free = append(f.free, w.Holders...)
	f.mu.Unlock()
	return nil
}

// SetHandicaps switches on exactly those of the list (contract.Handicaps), now and for workers to come.
func (f *Fleet) SetHandicaps(on []string) {
	f.do(func(now int64) {
		f.handicaps = on
		f.core.SetLivenessOff(now, slices.Contains(on, contract.HandicapLivenessOff))
		f.core.SetNoThinSlice(slices.Contains(on, contract.HandicapNoThinSlice))
		f.core.SetLoadAgeOff(slices.Contains(on, contract.HandicapLoadAgeOff))
		f.core.SetHairTrigger(slices.Contains(on, contract.HandicapHairTrigger))
		for _, m := range f.members {
			m.handicap(on)
		}
	})
}

// Place chooses a worker for a request and takes the guard; End gives it back. The transport is the one
// to reach that worker with. The error is ErrNoWorker.
func (f *Fleet) Place(ask Ask) (r *Request, t http.RoundTripper, err error) {
	f.do(func(now int64) {
		if r, err = f.core.Place(now, ask, f.opts.Picker); err == nil {
			t = f.members[r.Worker].transport
		}
	})
	return r, t, err
}

// Sent reports that the request is fully written.
func (f *Fleet) Sent(r *Request) { f.do(func(now int64) { f.core.Sent(now, r) }) }

// FirstByte reports the first byte of the answer's body.
func (f *Fleet) FirstByte(r *Request) { f.do(func(now int64) { f.core.FirstByte(now, r) }) }

// End gives the guard back. Only the first call counts; it says so.
func (f *Fleet) End(r *Request, o Outcome) (first bool) {
	f.do(func(now int64) { first = f.core.End(now, r, o) })
	return first
}

// Byte reports a further byte of the answer. It takes the lock only while the worker is vetoed, when the
// byte is news.
func (f *Fleet) Byte(r *Request) { f.heed(r.Worker, r.Worker.HeardByte(clock.MonoNs())) }

// EventBatch reports a new live event batch of a worker.
func (f *Fleet) EventBatch(w *Worker, monoNs int64) { f.heed(w, w.HeardBatch(monoNs)) }

func (f *Fleet) heed(w *Worker, news bool) {
	if news {
		f.do(func(now int64) { f.core.Heed(now, w) })
	}
}

// SetBlocked says whether the client of r keeps us waiting: then its silence is not the worker's.
func (r *Request) SetBlocked(blocked bool) { r.blocked.Store(blocked) }

// Ready says whether a request could be placed now.
func (f *Fleet) Ready() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := clock.MonoNs()
	return slices.ContainsFunc(f.core.workers, func(w *Worker) bool { return f.core.routable(now, w) })
}
