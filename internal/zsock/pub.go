package zsock

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zeromq/zmq4"
)

const (
	// defaultPubHWM is vLLM's default of --kv-events-config hwm, in messages per subscriber.
	defaultPubHWM = 100_000
	// maxFromSubscriber bounds what a subscriber may send at once, in bytes: a subscription.
	maxFromSubscriber = 64 << 10

	redialMin = 10 * time.Millisecond
	redialMax = time.Second
)

// Unlimited as PubOptions.HWM drops nothing, whatever memory that takes: what 0 is to libzmq.
const Unlimited = -1

// PubOptions configures a Pub. The zero value is a vLLM publisher's socket with default settings.
type PubOptions struct {
	// HWM is how many messages wait for one subscriber before further ones are dropped for it, silently;
	// 0 = 100000, Unlimited = none ever is. As in libzmq, a subscriber that fell behind gets room again in steps of HWM/2.
	HWM int
	// WriteTimeout is how long one write to a subscriber may take before the subscriber is closed; 0 = for
	// ever, which is libzmq's way: a stuck subscriber stays and its messages are dropped.
	WriteTimeout time.Duration
	// Log receives connects and disconnects; nil = nobody.
	Log *slog.Logger
}

// PubStats are the counters of a Pub since NewPub.
type PubStats struct {
	Peers   int    // subscribers connected now, subscribed to anything or not
	Sent    uint64 // messages queued for a subscriber, counted once per subscriber
	Dropped uint64 // messages dropped at a subscriber's HWM, counted once per subscriber
	Kicked  uint64 // subscribers closed by WriteTimeout
}

// Pub is a PUB socket. It is safe for concurrent use; messages of one goroutine keep their order.
type Pub struct {
	o    PubOptions
	host *host

	// mu is read-locked by Send for as long as it takes to append to every peer's outbox.
	mu    sync.RWMutex
	peers []*subscriber

	sent, dropped, kicked atomic.Uint64
}

// subscriber is one peer of a Pub.
type subscriber struct {
	link   *link
	filter atomic.Pointer[filter] // replaced by the link's reader, read by Send
}

// NewPub makes a PUB socket without endpoints.
func NewPub(o PubOptions) *Pub {
	if o.HWM == 0 {
		o.HWM = defaultPubHWM
	}
	return &Pub{o: o, host: newHost(o.Log)}
}

// Bind accepts subscribers on an endpoint and returns it with the real port. It can be called again for
// further endpoints.
func (p *Pub) Bind(endpoint string) (bound string, err error) {
	return p.host.bind(endpoint, func(nc net.Conn) { p.serve(nc, true) })
}

// Connect dials one subscriber that binds, now and again whenever the connection is lost, in the
// background. The error is about the endpoint's text only.
func (p *Pub) Connect(endpoint string) error {
	if _, _, err := parseEndpoint(endpoint, false); err != nil {
		return err
	}
	if !p.host.start(func() { p.redial(endpoint) }) {
		return ErrClosed
	}
	return nil
}

func (p *Pub) redial(endpoint string) {
	pause := backoff{min: redialMin, max: redialMax}
	for p.host.ctx.Err() == nil {
		nc, err := dial(p.host.ctx, endpoint, dialTimeout)
		if err == nil {
			since := time.Now()
			p.host.hold(nc, func(nc net.Conn) { p.serve(nc, false) })
			pause.lived(time.Since(since))
		}
		p.host.sleep(pause.next())
	}
}

// Send queues a message, given as its frames, for every subscriber of which a topic is a prefix of the
// first frame. It never waits for a peer. A subscriber whose subscription has arrived, which a Sub reports
// as SubUp, gets it unless its queue is full. Neither the slice nor the frames may be modified afterwards.
func (p *Pub) Send(frames ...[]byte) {
	if len(frames) == 0 {
		return
	}
	var sent, lost uint64
	p.mu.RLock()
	defer p.mu.RUnlock()
	for _, s := range p.peers {
		if !s.filter.Load().match(frames[0]) {
			continue
		}
		switch s.link.out.push(frames) {
		case pushed:
			sent++
		case dropped:
			lost++
		}
	}
	p.sent.Add(sent)
	p.dropped.Add(lost)
}

// Stats returns the counters.
func (p *Pub) Stats() PubStats {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return PubStats{
		Peers: len(p.peers), Sent: p.sent.Load(), Dropped: p.dropped.Load(), Kicked: p.kicked.Load(),
	}
}

// Close closes every endpoint and connection and waits for every goroutine. Messages that still wait for a
// subscriber are forgotten, as with vLLM's linger of 0.
func (p *Pub) Close() error { return p.host.close() }

// serve is the life of one subscriber.
func (p *Pub) serve(nc net.Conn, server bool) {
	log := p.host.log.With("peer", nc.RemoteAddr().String())
	l, err := openLink(nc, linkOptions{
		kind: zmq4.Pub, server: server, hwm: p.o.HWM, max: maxFromSubscriber, writeTimeout: p.o.WriteTimeout,
	})
	if err != nil {
		log.Debug("not a subscriber", "err", err)
		return
	}
	s := &subscriber{link: l}
	s.filter.Store(&filter{})
	p.add(s) // before its subscription is read, or a message sent in between would miss it
	defer p.remove(s)
	log.Debug("subscriber connected")
	err = l.run(0, s.handle)
	if p.o.WriteTimeout > 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		p.kicked.Add(1)
		log.Warn("closed a subscriber that does not read", "err", err)
		return
	}
	log.Debug("subscriber gone", "err", err)
}

func (s *subscriber) handle(in incoming) error {
	f, err := s.filter.Load().apply(in)
	if err != nil {
		return err
	}
	s.filter.Store(f)
	return nil
}

func (p *Pub) add(s *subscriber) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.peers = append(p.peers, s)
}

func (p *Pub) remove(s *subscriber) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.peers, s)
	p.peers = slices.Delete(p.peers, i, i+1)
}
