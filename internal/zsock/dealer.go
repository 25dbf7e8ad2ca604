package zsock

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/go-zeromq/zmq4"
)

const (
	defaultDialTimeout = 3 * time.Second
	// dealerQueue is how many messages wait for Dealer.Recv before the dealer stops reading.
	dealerQueue = 1024
)

// DealerOptions configures a Dealer.
type DealerOptions struct {
	// MaxFrame bounds one incoming message, all frames together, in bytes; 0 = 64 MB. A longer one ends the
	// connection.
	MaxFrame int64
	// DialTimeout bounds dialling, without the handshake, which has 3 s of its own; 0 = 3 s.
	DialTimeout time.Duration
}

// Dealer is a DEALER socket on one connection, which is not dialled again: a lost one ends the exchange,
// and the caller decides whether to begin another. Frames go out as given, so a peer that expects REQ's empty
// first frame must be sent one. Recv is for one goroutine at a time, the rest is safe for concurrent use.
type Dealer struct {
	host     *host
	link     *link
	messages chan message // closed when the connection has ended
	cause    error        // why it ended; read after messages is closed
}

// DialDealer connects to an endpoint and completes the handshake. A ctx that ends later has no effect.
func DialDealer(ctx context.Context, endpoint string, o DealerOptions) (*Dealer, error) {
	if o.MaxFrame <= 0 {
		o.MaxFrame = defaultMaxMessage
	}
	if o.DialTimeout <= 0 {
		o.DialTimeout = defaultDialTimeout
	}
	nc, err := dial(ctx, endpoint, o.DialTimeout)
	if err != nil {
		return nil, err
	}
	l, err := openWithin(ctx, nc, linkOptions{kind: zmq4.Dealer, max: o.MaxFrame})
	if err != nil {
		return nil, fmt.Errorf("dialling %s: %w", endpoint, err)
	}
	d := &Dealer{host: newHost(nil), link: l, messages: make(chan message, dealerQueue)}
	d.host.start(func() { d.host.hold(nc, d.serve) })
	return d, nil
}

// openWithin is openLink that also ends with ctx.
func openWithin(ctx context.Context, nc net.Conn, o linkOptions) (*link, error) {
	stop := context.AfterFunc(ctx, func() { _ = nc.Close() })
	l, err := openLink(nc, o)
	if !stop() { // ctx ended first, and nc is closed or about to be
		return nil, ctx.Err()
	}
	return l, err
}

func (d *Dealer) serve(net.Conn) {
	defer close(d.messages)
	d.cause = d.link.run(0, d.handle)
}

func (d *Dealer) handle(in incoming) error {
	if in.command != "" {
		return nil
	}
	select {
	case d.messages <- in.frames:
		return nil
	case <-d.host.ctx.Done():
		return ErrClosed
	}
}

// Send queues a message, given as its frames, and does not wait for the peer. Its error says that the
// connection has ended. Neither the slice nor the frames may be modified afterwards.
func (d *Dealer) Send(frames ...[]byte) error {
	if d.link.out.push(frames) == gone {
		return ErrPeerGone
	}
	return nil
}

// Recv returns the next message. Its error is that of ctx, or, once the messages that arrived before are
// returned, why the connection has ended: ErrClosed after Close, else an error that wraps ErrPeerGone.
func (d *Dealer) Recv(ctx context.Context) ([][]byte, error) {
	select {
	case m, ok := <-d.messages:
		switch {
		case ok:
			return m, nil
		case d.host.ctx.Err() != nil:
			return nil, ErrClosed
		}
		return nil, fmt.Errorf("%w: %w", ErrPeerGone, d.cause)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Close ends the connection and waits for every goroutine. Messages still queued are forgotten.
func (d *Dealer) Close() error { return d.host.close() }
