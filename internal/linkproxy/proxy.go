package linkproxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"fleetdrill/internal/clock"
)

// Options configures a Proxy.
type Options struct {
	// Upstream is the port behind the proxy, as host:port.
	Upstream string
	// Listen is the address in front; empty means 127.0.0.1:0.
	Listen string
	// HTTP logs the HTTP/1 requests that pass; without it connections and bytes are counted only.
	HTTP bool
	// Log receives what is odd but no error of the proxy; nil discards.
	Log *slog.Logger
	// Now stamps the log; nil means clock.MonoNs.
	Now func() int64
}

// Stats counts what passed since Start.
type Stats struct {
	// Attempts are the requests other than GET, Probes the GETs, the refused ones included. Open are the
	// attempts forwarded and not ended.
	Attempts, Probes, Open int
	// Conns are the connections accepted, Live the ones not ended, Refused the ones that the upstream did
	// not take, Opaque the ones that could not be followed as HTTP/1.
	Conns, Live, Refused, Opaque int
	// HeldBytes wait here behind a Hold at this moment; 0 when nothing is held.
	HeldBytes int64
	// BytesUp were forwarded to the upstream, BytesDown to clients.
	BytesUp, BytesDown int64
}

// Proxy is one TCP proxy in front of one port. Safe for concurrent use.
type Proxy struct {
	listen string
	http   bool
	log    *slog.Logger
	now    func() int64
	// refusedWaits is how many waits a client has whose upstream refused.
	refusedWaits int

	gate   gate
	delay  atomic.Int64 // nanoseconds
	ledger ledger
	// chunks recycles buffers: a connection holds one only while it moves bytes.
	chunks sync.Pool

	conns, refused, opaque atomic.Int64
	bytesUp, bytesDown     atomic.Int64

	// ctx ends dials and waits at Close; tasks counts the accept loop and the links.
	ctx    context.Context
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	mu       sync.Mutex // guards the fields below
	upstream string
	listener *net.TCPListener
	links    map[*link]struct{}
	closed   bool
}

// New returns a Proxy that does nothing before Start.
func New(o Options) *Proxy {
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = clock.MonoNs
	}
	p := &Proxy{
		listen: o.Listen, http: o.HTTP, log: o.Log, now: o.Now,
		refusedWaits: refusedWaits,

		chunks:   sync.Pool{New: func() any { return new(chunk) }},
		upstream: o.Upstream,
		links:    make(map[*link]struct{}),
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// Start listens and serves until Close. Call it once.
func (p *Proxy) Start() error {
	addr, err := net.ResolveTCPAddr("tcp", p.listen)
	if err != nil {
		return fmt.Errorf("resolving the proxy's address: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.listener != nil {
		return errors.New("starting the proxy: started before")
	}
	p.listener, err = net.ListenTCP("tcp", addr)
	if err != nil {
		return fmt.Errorf("starting the proxy of %s: %w", p.upstream, err)
	}
	p.tasks.Go(func() { p.accept(p.listener) })
	return nil
}

// Addr is the address in front, as host:port; empty before Start.
func (p *Proxy) Addr() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener == nil {
		return ""
	}
	return p.listener.Addr().String()
}

// SetUpstream sends connections that are accepted, or released, from now on to addr (host:port).
func (p *Proxy) SetUpstream(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.upstream = addr
}

// Hold stops reading and forwarding in both directions: connections stay, new ones are accepted and wait.
// A piece that is already being written may still arrive. Holding twice is holding once.
func (p *Proxy) Hold() { p.gate.hold() }

// Release ends a Hold: what was held is forwarded in order, new connections reach the upstream.
func (p *Proxy) Release() { p.gate.release() }

// Delay forwards what is read from now on d later, in both directions, in order. It adds latency and
// takes away no throughput. The end of a connection waits for the bytes before it; 0 ends the delay.
func (p *Proxy) Delay(d time.Duration) { p.delay.Store(int64(d)) }

// Stats returns the counts so far.
func (p *Proxy) Stats() Stats {
	s := Stats{
		Conns: int(p.conns.Load()), Refused: int(p.refused.Load()), Opaque: int(p.opaque.Load()),
		BytesUp: p.bytesUp.Load(), BytesDown: p.bytesDown.Load(),
	}
	p.ledger.mu.Lock()
	s.Attempts, s.Probes, s.Open = p.ledger.attempts, p.ledger.probes, p.ledger.open
	p.ledger.mu.Unlock()
	held := p.gate.held()
	if held {
		s.HeldBytes = p.gate.waiting.Load()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s.Live = len(p.links)
	if held {
		for l := range p.links {
			s.HeldBytes += l.unread()
		}
	}
	return s
}

// Requests returns the requests from number from on, ended or open. An open one must be asked for again.
// Only the last 131,072 are sure to be kept.
func (p *Proxy) Requests(from int) []RequestLog { return p.ledger.since(from) }

// Close stops listening, closes every connection and waits for all of it. Idempotent.
func (p *Proxy) Close() error {
	p.mu.Lock()
	var err error
	if !p.closed && p.listener != nil {
		err = p.listener.Close()
	}
	p.closed = true
	p.cancel()
	for l := range p.links {
		l.shut()
	}
	p.mu.Unlock()
	p.tasks.Wait()
	if err != nil {
		return fmt.Errorf("closing the proxy: %w", err)
	}
	return nil
}

// acceptPause is the wait after a failed accept, which means that descriptors have run out.
const acceptPause = 10 * time.Millisecond

func (p *Proxy) accept(listener *net.TCPListener) {
	for {
		client, err := listener.AcceptTCP()
		if err == nil {
			p.serve(client)
			continue
		}
		if p.ctx.Err() != nil {
			return
		}
		p.log.Warn("accepting a connection failed", "addr", listener.Addr().String(), "err", err)
		select {
		case <-time.After(acceptPause):
		case <-p.ctx.Done():
			return
		}
	}
}

// serve starts the link of an accepted connection.
func (p *Proxy) serve(client *net.TCPConn) {
	p.conns.Add(1)
	l := newLink(p, client)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		l.shut()
		return
	}
	p.links[l] = struct{}{}
	p.tasks.Go(func() {
		l.run()
		p.mu.Lock()
		delete(p.links, l)
		p.mu.Unlock()
	})
}

// dial connects to the upstream of this moment.
func (p *Proxy) dial() (*net.TCPConn, error) {
	p.mu.Lock()
	upstream := p.upstream
	p.mu.Unlock()
	conn, err := new(net.Dialer).DialContext(p.ctx, "tcp", upstream)
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}
