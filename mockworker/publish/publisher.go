package publish

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"fleetdrill/internal/clock"
	"fleetdrill/internal/zsock"
	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/ring"
	"fleetdrill/mockworker/truth"
)

// Encoder turns the events of one step into payload bytes; mockworker/wire makes them.
type Encoder interface {
	AppendBatch(dst []byte, ts float64, events []engine.Event) []byte
	// ReplayHasTopic says whether replay replies carry the topic frame (from vLLM 0.26).
	ReplayHasTopic() bool
}

// Options make a publisher. Config, Host, Encoder and Fold are needed.
type Options struct {
	Config Config
	// Host is what "*" in an endpoint binds.
	Host    string
	Rank    int
	Encoder Encoder
	// Fold takes every payload in the moment it goes out.
	Fold *truth.Fold
	// ReplayHWM above 0 loses replay frames as libzmq does when that many wait for one peer (real engines:
	// 1,000); 0 loses none.
	ReplayHWM int
	// Log may be nil.
	Log *slog.Logger
}

// Stats count what a publisher did.
type Stats struct {
	NextSeq int64
	// ReplayRequests were answered, ReplayMalformed were not: they had other frames than empty and seq.
	ReplayRequests, ReplayMalformed, ReplayBatches int64
	Peers                                          int
	Sent, Dropped                                  uint64
}

// Publisher is one rank's publisher incarnation. Publish and Flush are for one caller, the step loop.
type Publisher struct {
	o      Options
	topic  []byte
	pub    *zsock.Pub
	router *zsock.Router // nil without a replay endpoint
	events string
	replay string
	epoch  int64

	scratch []byte // Publish's encoding buffer
	queue   *queue
	asked   chan *zsock.Request

	// buffer belongs to the publisher goroutine; seq is the next sequence number.
	buffer *ring.Ring[sent]
	seq    atomic.Int64

	requests, malformed, replayed atomic.Int64

	stop   context.CancelFunc
	wg     sync.WaitGroup
	closed sync.Once
}

// sent is one batch of the replay buffer, the very frames that went out.
type sent struct{ seq, payload []byte }

// New opens the sockets of o and starts publishing. Close must be called.
func New(o Options) (*Publisher, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	p := &Publisher{
		o:      o,
		topic:  []byte(o.Config.Topic),
		pub:    zsock.NewPub(zsock.PubOptions{HWM: o.Config.HWM, Log: o.Log}),
		epoch:  clock.MonoNs(),
		queue:  newQueue(o.Config.MaxQueueSize),
		asked:  make(chan *zsock.Request),
		buffer: ring.New[sent](o.Config.BufferSteps),
	}
	if err := p.open(); err != nil {
		return nil, errors.Join(err, p.closeSockets())
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	p.wg.Go(func() { p.run(ctx) })
	if p.router != nil {
		p.wg.Go(func() { p.listen(ctx) })
	}
	return p, nil
}

func (p *Publisher) open() error {
	at, err := ResolveEvents(p.o.Config.Endpoint, p.o.Host, p.o.Rank)
	if err != nil {
		return fmt.Errorf("opening the event socket of rank %d: %w", p.o.Rank, err)
	}
	p.events = at.Endpoint
	if at.Bind {
		p.events, err = p.pub.Bind(at.Endpoint)
	} else {
		err = p.pub.Connect(at.Endpoint)
	}
	if err != nil {
		return fmt.Errorf("opening the event socket of rank %d: %w", p.o.Rank, err)
	}
	if p.o.Config.ReplayEndpoint == nil {
		return nil
	}
	at, err = ResolveReplay(*p.o.Config.ReplayEndpoint, p.o.Host, p.o.Rank)
	if err == nil {
		p.router = zsock.NewRouter(zsock.RouterOptions{HWM: p.o.ReplayHWM, Log: p.o.Log})
		p.replay, err = p.router.Bind(at.Endpoint)
	}
	if err != nil {
		return fmt.Errorf("opening the replay socket of rank %d: %w", p.o.Rank, err)
	}
	return nil
}

// Endpoints are where a peer dials: the event socket's (or, when it connects, the one it connects to) and
// the replay socket's, empty without one.
func (p *Publisher) Endpoints() (events, replay string) { return p.events, p.replay }

// Epoch names this incarnation: CLOCK_MONOTONIC ns of its making.
func (p *Publisher) Epoch() int64 { return p.epoch }

// Publish encodes the events of one step, stamps them with the wall clock and queues them as one batch.
// It waits while the queue is full, until ctx ends. events may be reused afterwards.
func (p *Publisher) Publish(ctx context.Context, events []engine.Event) error {
	if len(events) == 0 {
		return nil
	}
	ts := float64(time.Now().UnixNano()) / 1e9
	p.scratch = p.o.Encoder.AppendBatch(p.scratch[:0], ts, events)
	// A copy of the exact size: the replay buffer keeps thousands of these.
	err := p.queue.push(ctx, item{monoNs: clock.MonoNs(), payload: bytes.Clone(p.scratch)})
	if err != nil {
		return fmt.Errorf("queueing an event batch: %w", err)
	}
	return nil
}

// Flush waits until every batch queued so far is folded and sent.
func (p *Publisher) Flush(ctx context.Context) error {
	done := make(chan struct{})
	if err := p.queue.push(ctx, item{flushed: done}); err != nil {
		return fmt.Errorf("queueing behind the event batches: %w", err)
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the event batches to go out: %w", ctx.Err())
	}
}

// Stats is a snapshot of the counters.
func (p *Publisher) Stats() Stats {
	s := p.pub.Stats()
	return Stats{
		NextSeq:         p.seq.Load(),
		ReplayRequests:  p.requests.Load(),
		ReplayMalformed: p.malformed.Load(),
		ReplayBatches:   p.replayed.Load(),
		Peers:           s.Peers, Sent: s.Sent, Dropped: s.Dropped,
	}
}

// Close sends what is queued, closes the sockets without linger and waits for the goroutines.
func (p *Publisher) Close() (err error) {
	p.closed.Do(func() {
		p.stop()
		p.wg.Wait()
		err = p.closeSockets()
	})
	return err
}

func (p *Publisher) closeSockets() error {
	err := p.pub.Close()
	if p.router != nil {
		err = errors.Join(err, p.router.Close())
	}
	return err
}

// run is the publisher goroutine: batches, and between two batches at most one replay.
func (p *Publisher) run(ctx context.Context) {
	for {
		p.drain()
		select {
		case <-p.queue.filled:
		case q := <-p.asked:
			p.serve(q)
		case <-ctx.Done():
			p.drain()
			return
		}
	}
}

func (p *Publisher) drain() {
	for {
		it, ok := p.queue.pop()
		if !ok {
			return
		}
		if it.flushed != nil {
			close(it.flushed)
			continue
		}
		p.send(it)
		select {
		case q := <-p.asked:
			p.serve(q)
		default:
		}
	}
}

// send gives a batch its sequence number. It is folded and buffered before it leaves: whoever has received
// it must find it in the truth and in a replay.
func (p *Publisher) send(it item) {
	n := p.seq.Load()
	seq := binary.BigEndian.AppendUint64(nil, uint64(n))
	if err := p.o.Fold.Apply(n, it.monoNs, it.payload); err != nil {
		p.o.Log.Warn("an event batch went out that cannot be read", "rank", p.o.Rank, "seq", n, "err", err)
	}
	p.buffer.Push(sent{seq: seq, payload: it.payload})
	p.seq.Store(n + 1)
	p.pub.Send(p.topic, seq, it.payload)
}
