package zsock

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync/atomic"

	"github.com/go-zeromq/zmq4"
)

// ErrPeerGone is returned by a Reply to a connection that has ended.
var ErrPeerGone = errors.New("zsock: the peer is gone")

// errOwed ends the connection of a peer that goes on asking and does not read.
var errOwed = errors.New("the peer asks for more than it reads")

const (
	// requestQueue is how many requests wait for Router.Recv before the router stops reading.
	requestQueue = 1024
	// defaultMaxRequest bounds one request in bytes; a replay request has eight.
	defaultMaxRequest = 64 << 10
)

// RouterOptions configures a Router.
type RouterOptions struct {
	// HWM is how many replies wait for one peer before further ones are dropped for it, silently and with
	// libzmq's steps of HWM/2; libzmq's default is 1000. 0 = unlimited: nothing is dropped.
	HWM int
	// MaxOwed is how many replies may wait for one peer that has no HWM to lose them at: one more ends its
	// connection. 0 = any number, which a peer that asks and does not read can make as large as it likes.
	MaxOwed int
	// MaxFrame bounds one request, all frames together, in bytes; 0 = 64 KB. A longer one ends the connection.
	MaxFrame int64
	// Log receives connects and disconnects; nil = nobody.
	Log *slog.Logger
}

// RouterStats are the counters of a Router since NewRouter.
type RouterStats struct {
	Peers   int    // connections now
	Sent    uint64 // replies queued for a peer
	Dropped uint64 // replies dropped at a peer's HWM
}

// Router is a ROUTER socket that answers requests. Instead of an identity frame, a request remembers the
// connection it came from. It is safe for concurrent use.
type Router struct {
	o        RouterOptions
	host     *host
	requests chan *Request

	peers         atomic.Int64
	sent, dropped atomic.Uint64
}

// Request is one message to a Router.
type Request struct {
	// Frames are the frames after the identity: of a REQ peer, and of a DEALER that does as REQ does, the
	// first is empty.
	Frames [][]byte

	router *Router
	from   *link
}

// NewRouter makes a ROUTER socket without endpoints.
func NewRouter(o RouterOptions) *Router {
	if o.MaxFrame <= 0 {
		o.MaxFrame = defaultMaxRequest
	}
	return &Router{o: o, host: newHost(o.Log), requests: make(chan *Request, requestQueue)}
}

// Bind accepts peers on an endpoint and returns it with the real port.
func (r *Router) Bind(endpoint string) (bound string, err error) {
	return r.host.bind(endpoint, r.serve)
}

// Recv returns the next request of any peer. Its error is that of ctx, or ErrClosed.
func (r *Router) Recv(ctx context.Context) (*Request, error) {
	select {
	case q := <-r.requests:
		return q, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-r.host.ctx.Done():
		return nil, ErrClosed
	}
}

// Reply queues a message, given as the frames after the identity, for the connection the request came from.
// It never waits for the peer and can be called many times. A reply dropped at the HWM is no error, as
// with libzmq: Stats counts it. One too many for MaxOwed is ErrPeerGone. Neither the slice nor the frames may be modified afterwards.
func (q *Request) Reply(frames ...[]byte) error {
	switch q.from.out.push(frames) {
	case pushed:
		q.router.sent.Add(1)
	case dropped:
		q.router.dropped.Add(1)
	case gone:
		return ErrPeerGone
	case tooMany:
		q.from.fail(errOwed)
		return ErrPeerGone
	}
	return nil
}

// Stats returns the counters.
func (r *Router) Stats() RouterStats {
	return RouterStats{Peers: int(r.peers.Load()), Sent: r.sent.Load(), Dropped: r.dropped.Load()}
}

// Close closes every endpoint and connection and waits for every goroutine. Replies that still wait for a
// peer are forgotten.
func (r *Router) Close() error { return r.host.close() }

// serve is the life of one peer.
func (r *Router) serve(nc net.Conn) {
	log := r.host.log.With("peer", nc.RemoteAddr().String())
	l, err := openLink(nc, linkOptions{kind: zmq4.Router, server: true, hwm: r.o.HWM, most: r.o.MaxOwed, max: r.o.MaxFrame})
	if err != nil {
		log.Debug("not a requester", "err", err)
		return
	}
	r.peers.Add(1)
	defer r.peers.Add(-1)
	log.Debug("requester connected")
	err = l.run(0, func(in incoming) error { return r.handle(l, in) })
	if errors.Is(err, errOwed) {
		log.Warn("a requester was put out", "err", err, "owed", r.o.MaxOwed)
		return
	}
	log.Debug("requester gone", "err", err)
}

func (r *Router) handle(from *link, in incoming) error {
	if in.command != "" {
		return nil
	}
	select {
	case r.requests <- &Request{Frames: in.frames, router: r, from: from}:
		return nil
	case <-r.host.ctx.Done():
		return ErrClosed
	}
}
