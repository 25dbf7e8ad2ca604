package zsock

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/go-zeromq/zmq4"

	"fleetdrill/internal/clock"
)

const (
	defaultHeartbeat = 500 * time.Millisecond
	// defaultSubQueue is libzmq's receive high-water mark, in messages.
	defaultSubQueue = 1000
	// defaultMaxMessage is far above any batch of events, in bytes.
	defaultMaxMessage = 64 << 20

	// A publisher that answers PINGs is gone after missesProven heartbeats without a byte from it. One that
	// has never answered gets longer, because it may not know PING at all and just have nothing to say; it
	// too must be dialled again, because the answer may be missing for the reason that nothing arrives.
	missesProven   = 3
	missesUnproven = 10
)

// SubOptions configures a Sub. The zero value subscribes to everything.
type SubOptions struct {
	// Topic is the prefix of the first frame to subscribe to; "" = every message.
	Topic string
	// Heartbeat is the time between PINGs; 0 = 500 ms. A publisher that answers them counts as gone after
	// three without a byte, one that never did after ten.
	Heartbeat time.Duration
	// BackoffMin and BackoffMax bound the delay before the next dial; 0 = 10 ms and 1 s.
	BackoffMin, BackoffMax time.Duration
	// Queue is how many events wait for Recv; 0 = 1000. When it is full, the socket stops reading and the
	// publisher queues, then drops.
	Queue int
	// MaxFrame bounds one message, all frames together, in bytes; 0 = 64 MB. A longer one ends the connection.
	MaxFrame int64
	// Log receives connects and disconnects; nil = nobody.
	Log *slog.Logger
}

// SubKind says what a SubEvent is.
type SubKind int

const (
	// SubUp says that the publisher has the subscription: every message it sends from now on is delivered,
	// unless it drops it. It is proven by the answer to a PING sent after the subscription, or by a message;
	// from a publisher that gives neither it is assumed after one heartbeat. A Pub keeps this exactly; a
	// libzmq publisher answers on another thread than the one that takes the subscription in at its next
	// send, so messages it sends within about a millisecond may still be missing.
	SubUp SubKind = iota + 1
	// SubDown says that the connection is lost. Messages may be missing until the next SubUp.
	SubDown
	// SubMessage is a message.
	SubMessage
)

// String is the kind's name in logs and test output.
func (k SubKind) String() string {
	switch k {
	case SubUp:
		return "up"
	case SubDown:
		return "down"
	case SubMessage:
		return "message"
	}
	return "invalid"
}

// SubEvent is what Recv returns. The order is that of the wire: SubUp, messages, SubDown, SubUp, ...
type SubEvent struct {
	Kind   SubKind
	Frames [][]byte // of a SubMessage; the receiver's own
	Err    error    // of a SubDown: why
	MonoNs int64    // when it came off the socket (SubMessage) or was noticed, CLOCK_MONOTONIC in ns
}

// Sub is a SUB socket on one publisher, which it dials for ever. Recv is for one goroutine at a time, the
// rest is safe for concurrent use.
type Sub struct {
	o        SubOptions
	endpoint string
	host     *host
	events   chan SubEvent // closed when the dial loop has ended
	nudge    chan struct{} // holds at most one Redial
}

// DialSub starts subscribing to one endpoint. The error is about the endpoint's text only: a publisher that
// is not there yet is waited for.
func DialSub(endpoint string, o SubOptions) (*Sub, error) {
	if _, _, err := parseEndpoint(endpoint, false); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	s := &Sub{
		o: o, endpoint: endpoint, host: newHost(o.Log),
		events: make(chan SubEvent, o.Queue), nudge: make(chan struct{}, 1),
	}
	s.host.start(s.loop)
	return s, nil
}

func (o SubOptions) withDefaults() SubOptions {
	if o.Heartbeat <= 0 {
		o.Heartbeat = defaultHeartbeat
	}
	if o.BackoffMin <= 0 {
		o.BackoffMin = redialMin
	}
	if o.BackoffMax <= 0 {
		o.BackoffMax = redialMax
	}
	if o.Queue <= 0 {
		o.Queue = defaultSubQueue
	}
	if o.MaxFrame <= 0 {
		o.MaxFrame = defaultMaxMessage
	}
	return o
}

// Recv returns the next event. Its error is that of ctx, or ErrClosed after Close and what was queued.
func (s *Sub) Recv(ctx context.Context) (SubEvent, error) {
	select {
	case e, ok := <-s.events:
		if !ok {
			return SubEvent{}, ErrClosed
		}
		return e, nil
	case <-ctx.Done():
		return SubEvent{}, ctx.Err()
	}
}

// Redial ends a back-off early, for a caller who has heard of the publisher on another path. Two dials are
// never less than BackoffMin apart. On a connected socket it does nothing.
func (s *Sub) Redial() {
	select {
	case s.nudge <- struct{}{}:
	default:
	}
}

// Close ends the connection and waits for every goroutine.
func (s *Sub) Close() error { return s.host.close() }

// loop dials until Close.
func (s *Sub) loop() {
	defer close(s.events)
	pause := backoff{min: s.o.BackoffMin, max: s.o.BackoffMax}
	for s.host.ctx.Err() == nil {
		since := time.Now()
		nc, err := dial(s.host.ctx, s.endpoint, dialTimeout)
		if err == nil {
			s.host.hold(nc, func(nc net.Conn) { err = s.serve(nc) })
			pause.lived(time.Since(since))
		}
		s.host.log.Debug("not subscribed", "endpoint", s.endpoint, "err", err)
		s.wait(&pause)
	}
}

// wait is the pause between two dials.
func (s *Sub) wait(pause *backoff) {
	d := pause.next()
	s.host.sleep(s.o.BackoffMin)
	t := time.NewTimer(d - s.o.BackoffMin)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.nudge:
		pause.reset()
	case <-s.host.ctx.Done():
	}
}

// serve is the life of one connection. It returns why it ended.
func (s *Sub) serve(nc net.Conn) error {
	l, err := openLink(nc, linkOptions{kind: zmq4.Sub, max: s.o.MaxFrame})
	if err != nil {
		return err
	}
	c := &subConn{sub: s, link: l}
	l.wire.sock.wait, l.wire.sock.silent = s.o.Heartbeat, c.silent
	// The writer does not run yet, so this goroutine may write, and it must: commands overtake messages in
	// the outbox, and only a PING behind the subscription proves by its answer that the subscription is in.
	if err := l.conn.SendMsg(zmq4.Msg{Frames: subscription(s.o.Topic)}); err != nil {
		return err
	}
	l.ping()
	err = l.run(s.o.Heartbeat, c.handle)
	if c.up {
		select { // a Redial from before the connection was lost is not about this outage
		case <-s.nudge:
		default:
		}
		_ = s.emit(SubEvent{Kind: SubDown, Err: err, MonoNs: clock.MonoNs()})
	}
	return err
}

// emit hands an event to Recv, in its turn.
func (s *Sub) emit(e SubEvent) error {
	select {
	case s.events <- e:
		return nil
	case <-s.host.ctx.Done():
		return ErrClosed
	}
}

// subConn is what the reader of one connection knows of its publisher.
type subConn struct {
	sub      *Sub
	link     *link
	up       bool // SubUp was delivered
	answered bool // the publisher has answered a PING
}

func (c *subConn) handle(in incoming) error {
	switch {
	case in.command == zmq4.CmdPong:
		c.answered = true
		return c.rise(c.link.wire.sock.readAt)
	case in.command != "":
		return nil // commands this side has no use for
	}
	at := c.link.wire.sock.readAt
	if err := c.rise(at); err != nil {
		return err
	}
	return c.sub.emit(SubEvent{Kind: SubMessage, Frames: in.frames, MonoNs: at})
}

// rise delivers SubUp, once.
func (c *subConn) rise(at int64) error {
	if c.up {
		return nil
	}
	c.up = true
	c.sub.host.log.Debug("subscribed", "endpoint", c.sub.endpoint)
	return c.sub.emit(SubEvent{Kind: SubUp, MonoNs: at})
}

// silent is asked by the socket after every heartbeat in which nothing arrived, misses of them in a row.
func (c *subConn) silent(misses int) error {
	limit := missesUnproven
	if c.answered {
		limit = missesProven
	}
	if misses >= limit {
		return errSilent{time.Duration(misses) * c.sub.o.Heartbeat}
	}
	return c.rise(clock.MonoNs())
}

// errSilent ends a connection on which nothing arrives.
type errSilent struct{ after time.Duration }

func (e errSilent) Error() string {
	return fmt.Sprintf("nothing received for %v, PINGs unanswered", e.after)
}
