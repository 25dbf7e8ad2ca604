package recovery

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zeebo/xxh3"

	"fleetdrill/gateway/index"
	"fleetdrill/gateway/lanes"
	"fleetdrill/internal/clock"
	"fleetdrill/internal/contract"
	"fleetdrill/internal/zsock"
)

// Waits between attempts to subscribe (rule 8); contact on another path ends one early.
const (
	backoffMin = 100 * time.Millisecond
	backoffMax = 5 * time.Second
)

// queueLength is how many arrivals wait to be applied. When they are too many the sockets are not read, and what
// the engine sends waits in the kernel and then in the engine.
const queueLength = 256

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
	// Lanes limit how many ranks apply at once; nil does not.
	Lanes *lanes.Pool
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
type Subscription struct {
	source Source
	deps   Deps
	log    *slog.Logger

	ctx    context.Context
	cancel context.CancelFunc
	// wg counts the run loop, the pump of the current SUB and the open replay call.
	wg      sync.WaitGroup
	arrived chan arrival // queueLength
	nudges  chan struct{}
	deaths  chan struct{}

	// mu guards what a reader must see whole: no batch is half applied and no clear half done while it is
	// free. The run loop alone changes these.
	mu sync.Mutex
	core
	lagMs float64

	// blocked counts arrivals that found the queue full, so that their socket was not read meanwhile.
	blocked atomic.Int64

	wanted wanted

	// subMu guards sub, which the run loop replaces and Nudge uses.
	subMu sync.Mutex
	sub   *zsock.Sub

	// Of the run loop: which SUB is the current one, and the end of the open replay call.
	generation int
	endCall    context.CancelFunc
}

// arrival is something for the cursor, in the order of its source.
type arrival struct {
	// Of a SUB: its generation, so that what a dropped one still had is told apart.
	generation int
	event      zsock.SubEvent
	// Of a replay call.
	call   int64
	reply  message
	status callStatus
}

// Start subscribes and keeps the holder's index equal to what the engine announces, until Close.
func Start(s Source, d Deps) *Subscription {
	log := d.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(context.Background())
	sub := &Subscription{
		source: s, deps: d, log: log.With("worker", s.Worker, "rank", s.Rank),
		ctx: ctx, cancel: cancel, endCall: func() {},
		arrived: make(chan arrival, queueLength),
		nudges:  make(chan struct{}, 1), deaths: make(chan struct{}, 1),
		core: newCore(s, d.Residency),
	}
	sub.wg.Add(1)
	go sub.run()
	return sub
}

// State is a snapshot at now, in monotonic ns; counts, digest and sequence number belong together.
func (s *Subscription) State(now int64) contract.RoutingRank {
	s.mu.Lock()
	defer s.mu.Unlock()
	rank := s.state(s.source.Rank)
	if !s.wanted.lagBlind.Load() {
		rank.ApplyLagMs = s.lagMs
	}
	rank.Queued, rank.Counters.QueueFull = len(s.arrived), s.blocked.Load()
	rank.Counters.Shed = s.deps.Residency.Shed(s.source.Holder)
	return rank
}

// WriteDump writes the rank's memberships as JSON lines, a contract.DumpHead and contract.DumpBlocks, all
// cut at one sequence number.
func (s *Subscription) WriteDump(w io.Writer) error {
	head, blocks := s.dump()
	enc := json.NewEncoder(w)
	if err := enc.Encode(head); err != nil {
		return fmt.Errorf("writing the head of a dump of %s rank %d: %w", s.source.Worker, s.source.Rank, err)
	}
	for _, b := range blocks {
		if err := enc.Encode(b); err != nil {
			return fmt.Errorf("writing a dump of %s rank %d: %w", s.source.Worker, s.source.Rank, err)
		}
	}
	return nil
}

// dump copies the memberships between two batches, so that writing them holds nobody up.
func (s *Subscription) dump() (contract.DumpHead, []contract.DumpBlock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	device, digest := s.deps.Residency.Sums(s.source.Holder, index.Device)
	host, hostDigest := s.deps.Residency.Sums(s.source.Holder, index.Host)
	blocks := make([]contract.DumpBlock, 0, device+host)
	s.deps.Residency.EachTier(s.source.Holder, func(m index.Membership, onDevice, onHost bool) bool {
		b := contract.DumpBlock{Hash: contract.U64(m.Hash), Position: m.Position, Content: contract.U64(m.Content), Tier: contract.TierDevice}
		if onDevice {
			blocks = append(blocks, b)
		}
		if b.Tier = contract.TierHost; onHost {
			blocks = append(blocks, b)
		}
		return true
	})
	return contract.DumpHead{
		MonoNs: clock.MonoNs(), Wall: clock.Wall(), Worker: s.source.Worker, Rank: s.source.Rank,
		Epoch: s.cursor.epoch, Seq: s.cursor.last, Blocks: device, Digest: contract.U64(digest),
		HostBlocks: host, HostDigest: contract.U64(hostDigest), Orphans: s.apply.orphaned, Shed: s.deps.Residency.Shed(s.source.Holder),
	}, blocks
}

// Nudge says that the worker was heard on another path: waiting to reconnect ends early.
func (s *Subscription) Nudge() {
	signal(s.nudges)
	s.subMu.Lock()
	defer s.subMu.Unlock()
	if s.sub != nil {
		s.sub.Redial()
	}
}

// WorkerDead says that liveness found the worker dead. Without a replay source the next connection is
// then a restarted engine.
func (s *Subscription) WorkerDead() { signal(s.deaths) }

// signal sets a flag that a channel of one carries.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// Close ends the subscription, waits for its goroutines and drops the holder from the index.
func (s *Subscription) Close() {
	s.cancel()
	s.wg.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deps.Residency.Drop(s.source.Holder)
}

// run owns the sockets and feeds the cursor until Close.
func (s *Subscription) run() {
	defer s.wg.Done()
	defer s.unsubscribe()
	defer func() { s.endCall() }()
	s.subscribe()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case a := <-s.arrived:
			s.step(func(now int64) { s.take(now, a) })
		case <-timer.C:
			busy := s.deps.Busy != nil && s.deps.Busy()
			s.step(func(now int64) { s.cursor.tick(now, busy) })
		case <-s.nudges:
			s.step(s.cursor.nudge)
		case <-s.deaths:
			s.step(func(int64) { s.cursor.dead() })
		}
		if at := s.cursor.deadline(); at > 0 {
			timer.Reset(max(time.Duration(at-clock.MonoNs()), 0))
		} else {
			timer.Stop()
		}
	}
}

// step gives the cursor one input and does what it asks for: changes of the index while no reader can look,
// everything else afterwards, each in order.
func (s *Subscription) step(input func(now int64)) {
	var now int64
	var later []action
	// What the world outside is asked for happens off the lane: it may block.
	s.deps.Lanes.Turn(s.ctx, func() { now, later = s.decide(input) })
	for _, a := range later {
		s.carryOut(now, a)
	}
}

// decide is the half of a step that readers wait for.
func (s *Subscription) decide(input func(now int64)) (now int64, later []action) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now = clock.MonoNs()
	s.cursor.handicaps = s.wanted.get()
	input(now)
	later = s.settle()
	if s.collected > 0 {
		s.lagMs = max(float64(time.Now().UnixNano())/1e6-s.collected*1e3, 0)
	}
	return now, later
}

// carryOut does what an action asks of the world outside.
func (s *Subscription) carryOut(now int64, a action) {
	switch a.kind {
	case doNote:
		s.log.Info("kv events: "+a.note, a.attrs...)
	case doContact:
		if s.deps.OnBatch != nil {
			s.deps.OnBatch(now)
		}
	case doCancel:
		s.endCall()
	case doAsk:
		s.endCall()
		ctx, cancel := context.WithCancel(s.ctx)
		s.endCall = cancel
		s.wg.Add(1)
		go s.call(ctx, a)
	case doResubscribe:
		s.unsubscribe()
		s.subscribe()
	}
}

// take gives the cursor what arrived.
func (s *Subscription) take(now int64, a arrival) {
	switch {
	case a.status != 0:
		s.takeReply(now, a)
	case a.generation != s.generation:
		// A dropped SUB's last words.
	case a.event.Kind == zsock.SubUp:
		s.cursor.up(now)
	case a.event.Kind == zsock.SubDown:
		s.cursor.note("disconnected", "err", a.event.Err)
		s.cursor.down()
	default:
		m, ok := parseMessage(a.event.Frames)
		if !ok {
			s.apply.norm.Drop(contract.DropBadFrames)
			return
		}
		s.cursor.live(now, m)
	}
}

// parseMessage reads the frames topic, sequence number, payload.
func parseMessage(frames [][]byte) (message, bool) {
	if len(frames) != 3 {
		return message{}, false
	}
	return newMessage(frames[1], frames[2])
}

// newMessage reads a sequence frame: 8 bytes, big-endian.
func newMessage(seq, payload []byte) (message, bool) {
	if len(seq) != 8 {
		return message{}, false
	}
	n := binary.BigEndian.Uint64(seq)
	return message{seq: int64(n), hash: xxh3.Hash(payload), payload: payload}, n <= math.MaxInt64
}

// subscribe dials the engine's PUB and starts to pump what it sends.
func (s *Subscription) subscribe() {
	sub, err := zsock.DialSub(s.source.Events, zsock.SubOptions{
		Topic: s.source.Topic, BackoffMin: backoffMin, BackoffMax: backoffMax, Log: s.log})
	if err != nil {
		s.log.Error("kv events: this endpoint cannot be subscribed to", "endpoint", s.source.Events, "err", err)
		return
	}
	s.subMu.Lock()
	s.sub = sub
	s.subMu.Unlock()
	s.wg.Add(1)
	go s.pump(sub, s.generation)
}

// unsubscribe drops the current SUB. Its pump ends by itself, and what it still sends is not listened to.
func (s *Subscription) unsubscribe() {
	s.subMu.Lock()
	sub := s.sub
	s.sub = nil
	s.subMu.Unlock()
	s.generation++
	if sub == nil {
		return
	}
	if err := sub.Close(); err != nil {
		s.log.Warn("kv events: closing the subscription", "err", err)
	}
}

// pump moves a SUB's events into the run loop until the SUB is closed.
func (s *Subscription) pump(sub *zsock.Sub, generation int) {
	defer s.wg.Done()
	for {
		event, err := sub.Recv(s.ctx)
		if err != nil {
			return
		}
		if !s.deliver(s.ctx, arrival{generation: generation, event: event}) {
			return
		}
	}
}

// deliver hands a to the run loop; false when ctx ends first.
func (s *Subscription) deliver(ctx context.Context, a arrival) bool {
	select {
	case s.arrived <- a:
		return true
	default:
		s.blocked.Add(1)
	}
	select {
	case s.arrived <- a:
		return true
	case <-ctx.Done():
		return false
	}
}
