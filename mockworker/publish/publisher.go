package publish

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"fleetdrill/internal/clock"
	"fleetdrill/internal/zsock"
	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/faults"
	"fleetdrill/mockworker/late"
	"fleetdrill/mockworker/ring"
	"fleetdrill/mockworker/truth"
)

// errClosed is why a publisher that is closed does nothing more.
var errClosed = errors.New("the publisher is closed")

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
	Host string
	// BindAnyAddress makes an event endpoint of 0.0.0.0 bind, as SGLang does and vLLM does not.
	BindAnyAddress bool
	Rank           int
	Encoder        Encoder
	// Fold takes every payload in the moment it goes out.
	Fold *truth.Fold
	// Faults may delay, drop or mute batches; nil never does.
	Faults *faults.Set
	// ReplayHWM above 0 loses replay frames as libzmq does when that many wait for one peer (real engines:
	// 1,000); 0 loses none.
	ReplayHWM int
	// Late holds removals back; the zero value does not.
	Late late.Options
	// Log may be nil.
	Log *slog.Logger
}

// Stats count what a publisher did, over all its incarnations but for NextSeq.
type Stats struct {
	NextSeq int64
	// Queued batches have no sequence number yet.
	Queued int
	// Batches were given a sequence number.
	Batches int64
	// ReplayRequests were answered, ReplayMalformed were not: they had other frames than empty and seq.
	ReplayRequests, ReplayMalformed, ReplayBatches int64
	Peers                                          int
	Sent, Dropped                                  uint64
}

// Publisher is one rank's publisher. Publish and Restart are for one caller, the step loop.
type Publisher struct {
	o     Options
	topic []byte
	at    place // with the ports that New found

	// encoding is held by whoever takes events, encodes them and queues the payload: the step loop, and the
	// publisher goroutine for removals whose time has come while no step runs. It guards scratch and late.
	encoding sync.Mutex
	scratch  []byte // Publish's encoding buffer
	late     *late.Removals

	queue    *queue
	asked    chan *zsock.Request
	commands chan command
	woken    chan struct{} // at most one token: "ask the faults again"

	// buffer and overtaken belong to the publisher goroutine; seq is the next sequence number. overtaken is
	// a batch that is buffered and folded, and waits for the next one to be sent before it.
	buffer    *ring.Ring[sent]
	overtaken *message
	seq       atomic.Int64

	mu      sync.Mutex // guards sockets and past
	sockets *sockets   // replaced by the publisher goroutine only
	past    zsock.PubStats

	batches, requests, malformed, replayed atomic.Int64
	followers                              followers

	ctx    context.Context // ends with Close
	stop   context.CancelFunc
	wg     sync.WaitGroup
	closed sync.Once
}

// command is something to be done by the publisher goroutine between two batches.
type command struct {
	do   func(context.Context)
	done chan struct{}
}

// sent is one batch of the replay buffer, the very frames that went out.
type sent struct{ seq, payload []byte }

// New opens the sockets of o and starts publishing. Close must be called.
func New(o Options) (*Publisher, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	first, err := placeOf(o)
	if err != nil {
		return nil, err
	}
	sock, err := open(o, first)
	if err != nil {
		return nil, err
	}
	p := &Publisher{
		o: o, topic: []byte(o.Config.Topic), at: sock.place(first), sockets: sock,
		queue: newQueue(o.Config.queueSize()), asked: make(chan *zsock.Request),
		commands: make(chan command), woken: make(chan struct{}, 1),
		buffer: ring.New[sent](o.Config.BufferSteps), late: late.New(o.Late),
	}
	o.Fold.OnUnreadable(func(seq int64, err error) {
		o.Log.Warn("an event batch went out that cannot be read", "rank", o.Rank, "seq", seq, "err", err)
	})
	o.Fold.Restart(clock.MonoNs())
	p.ctx, p.stop = context.WithCancel(context.Background())
	p.wg.Go(p.run)
	p.listenTo(sock)
	return p, nil
}

// Endpoints are where a peer dials: the event socket's (or, when it connects, the one it connects to) and
// the replay socket's, empty without one.
func (p *Publisher) Endpoints() (events, replay string) {
	if p.at.replay != nil {
		replay = p.at.replay.Endpoint
	}
	return p.at.events.Endpoint, replay
}

// Publish encodes the events of one step, perhaps none, stamps them with the wall clock and queues them as
// one batch. It waits while the queue is full, until ctx ends. events may be reused afterwards.
func (p *Publisher) Publish(ctx context.Context, events []engine.Event) error {
	if p.ctx.Err() != nil {
		return fmt.Errorf("queueing an event batch: %w", errClosed)
	}
	held, err := p.publish(ctx, events)
	if held {
		p.Wake() // what is held may be due before another step comes
	}
	if err != nil {
		return fmt.Errorf("queueing an event batch: %w", err)
	}
	return nil
}

// publish says whether removals are held.
func (p *Publisher) publish(ctx context.Context, events []engine.Event) (held bool, err error) {
	p.encoding.Lock()
	defer p.encoding.Unlock()
	now := clock.MonoNs()
	events = p.filter(now, events)
	held = p.late.Held() > 0
	if len(events) == 0 {
		return held, nil
	}
	return held, p.queue.push(ctx, item{monoNs: now, payload: p.encode(events)})
}

// Flush waits until every batch queued so far is folded and sent, but for those that a fault delays or lets
// another one overtake.
func (p *Publisher) Flush(ctx context.Context) error {
	if err := p.do(ctx, func(context.Context) {}); err != nil {
		return fmt.Errorf("waiting for the event batches to go out: %w", err)
	}
	return nil
}

// Wake makes the publisher look again what is due: after a fault was armed or healed.
func (p *Publisher) Wake() { signal(p.woken) }

// do runs fn on the publisher goroutine once every batch queued so far and due is out. It fails when ctx
// ends first, and fn may still run then, or when the publisher is closed.
func (p *Publisher) do(ctx context.Context, fn func(context.Context)) error {
	c := command{do: fn, done: make(chan struct{})}
	select {
	case p.commands <- c:
	case <-ctx.Done():
		return ctx.Err()
	case <-p.ctx.Done():
		return errClosed
	}
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Stats is a snapshot of the counters.
func (p *Publisher) Stats() Stats {
	p.mu.Lock()
	now, past := p.sockets.pub.Stats(), p.past
	p.mu.Unlock()
	return Stats{
		NextSeq:         p.seq.Load(),
		Queued:          p.queue.len(),
		Batches:         p.batches.Load(),
		ReplayRequests:  p.requests.Load(),
		ReplayMalformed: p.malformed.Load(),
		ReplayBatches:   p.replayed.Load(),
		Peers:           now.Peers, Sent: past.Sent + now.Sent, Dropped: past.Dropped + now.Dropped,
	}
}

// Close sends what is queued, closes the sockets without linger and waits for the goroutines.
func (p *Publisher) Close() (err error) {
	p.closed.Do(func() {
		p.stop()
		p.wg.Wait()
		p.followers.end(ErrClosed)
		err = p.sockets.close()
	})
	return err
}

// closeSockets closes the sockets of an incarnation that ends; they stay in place, mute, until others open.
func (p *Publisher) closeSockets() error {
	err := p.sockets.close()
	p.followers.end(ErrRestarted)
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.sockets.pub.Stats()
	p.past.Sent += s.Sent
	p.past.Dropped += s.Dropped
	p.sockets = &sockets{pub: zsock.NewPub(zsock.PubOptions{})}
	return err
}

// openAgain opens the sockets of a new incarnation where the old ones were.
func (p *Publisher) openAgain(ctx context.Context) error {
	sock, err := reopen(ctx, p.o, p.at)
	if err != nil {
		return err
	}
	p.mu.Lock()
	old := p.sockets
	p.sockets = sock
	p.mu.Unlock()
	p.listenTo(sock)
	return old.close()
}

// listenTo starts what takes replay requests from the sockets, until they close.
func (p *Publisher) listenTo(s *sockets) {
	if s.router != nil {
		p.wg.Go(func() { p.listen(s.router) })
	}
}

// run is the publisher goroutine: batches, and between two batches at most one replay.
func (p *Publisher) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		due := p.drain()
		p.settleOvertaken(clock.MonoNs())
		if next, ok := p.overdue(); ok && (due == 0 || next < due) {
			due = next
		}
		if due > 0 {
			timer.Reset(time.Duration(due - clock.MonoNs()))
		}
		select {
		case <-p.queue.filled:
		case <-timer.C:
		case <-p.woken:
		case q := <-p.asked:
			p.serve(q)
		case c := <-p.commands:
			p.drain()
			c.do(p.ctx)
			close(c.done)
		case <-p.ctx.Done():
			p.rest()
			return
		}
	}
}

// drain sends what is due. It returns when the next batch is, 0 when there is none.
func (p *Publisher) drain() (due int64) {
	for {
		it, ok := p.queue.peek()
		if !ok {
			return 0
		}
		now := clock.MonoNs()
		if due := p.o.Faults.Due(now, p.o.Rank, it.monoNs); due > now {
			return due
		}
		p.queue.pop()
		p.send(now, it.payload)
		select {
		case q := <-p.asked:
			p.serve(q)
		default:
		}
	}
}

// drainFor is how long a publisher that ends goes on sending what is queued, as vLLM's does.
const drainFor = time.Second

// rest sends what is queued when the publisher ends, due or not, as far as drainFor goes.
func (p *Publisher) rest() {
	end := clock.MonoNs() + int64(drainFor)
	for it, ok := p.queue.peek(); ok; it, ok = p.queue.peek() {
		if clock.MonoNs() >= end {
			p.o.Log.Warn("event batches are lost at the end", "rank", p.o.Rank, "batches", p.queue.empty())
			break
		}
		p.queue.pop()
		p.send(clock.MonoNs(), it.payload)
	}
	p.letOvertakenGo()
}

// send gives a batch its sequence number and lets it go the way that the faults have for it.
func (p *Publisher) send(now int64, payload []byte) {
	if payload = p.unmuted(now, payload); payload == nil {
		return
	}
	switch n := p.seq.Load(); p.o.Faults.Batch(now, p.o.Rank, n) {
	case faults.Mute:
	case faults.Lose:
		p.o.Fold.Lost(n, now)
		p.numbered(n)
	case faults.Hide:
		p.announce(now, payload)
	case faults.Send:
		p.sendTwisted(now, payload)
	}
}

// announce hands a batch to the fold and buffers it under the next sequence number, which it returns as it is
// sent. That comes before sending: whoever has received a batch must find it in the truth and in a replay.
func (p *Publisher) announce(now int64, payload []byte) (seq []byte) {
	n := p.seq.Load()
	seq = seqBytes(n)
	p.o.Fold.Defer(n, now, payload)
	p.buffer.Push(sent{seq: seq, payload: payload})
	p.numbered(n)
	return seq
}

// numbered notes that sequence number n is used up.
func (p *Publisher) numbered(n int64) {
	p.seq.Store(n + 1)
	p.batches.Add(1)
}
