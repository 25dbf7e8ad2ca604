package zsock

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"
)

// ErrClosed is returned by calls on a socket after its Close.
var ErrClosed = errors.New("zsock: socket closed")

// Accepting goes on after an error, most often too many open files, with pauses between these two.
const (
	acceptPauseMin = 5 * time.Millisecond
	acceptPauseMax = time.Second
)

// dialTimeout is how long one attempt of a redialling socket may take before the handshake: long enough for
// a busy machine, short enough that a healed partition is found within a second.
const dialTimeout = time.Second

// host owns what a socket must end on Close: its listeners, its connections and its goroutines.
type host struct {
	ctx    context.Context // ends with the socket
	cancel context.CancelFunc
	log    *slog.Logger

	wg sync.WaitGroup

	mu     sync.Mutex
	closed bool
	open   map[io.Closer]struct{}
}

func newHost(log *slog.Logger) *host {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	h := &host{log: log, open: make(map[io.Closer]struct{})}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	return h
}

// start runs f on a goroutine that close waits for. After close it does nothing and returns false.
func (h *host) start(f func()) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.wg.Go(f)
	return true
}

// keep makes close close c too. After close it closes c itself and returns false.
func (h *host) keep(c io.Closer) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		_ = c.Close()
		return false
	}
	h.open[c] = struct{}{}
	return true
}

// release closes c, which close then need not know of any more.
func (h *host) release(c io.Closer) {
	_ = c.Close()
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.open, c)
}

// close ends everything and waits for it. A second call waits too.
func (h *host) close() error {
	h.mu.Lock()
	h.closed = true
	h.cancel()
	for c := range h.open {
		_ = c.Close()
	}
	h.mu.Unlock()
	h.wg.Wait()
	return nil
}

// bind listens on an endpoint and serves every connection on a goroutine of its own, so that a peer that
// says nothing holds up nobody. serve need not close the connection.
func (h *host) bind(endpoint string, serve func(net.Conn)) (bound string, err error) {
	ln, bound, err := listen(endpoint)
	if err != nil {
		return "", err
	}
	if !h.keep(ln) || !h.start(func() { h.accept(ln, serve) }) {
		return "", ErrClosed
	}
	return bound, nil
}

func (h *host) accept(ln net.Listener, serve func(net.Conn)) {
	defer h.release(ln)
	pause := backoff{min: acceptPauseMin, max: acceptPauseMax}
	for {
		nc, err := ln.Accept()
		switch {
		case err == nil:
			pause.reset()
			if !h.start(func() { h.hold(nc, serve) }) {
				_ = nc.Close()
			}
		case h.ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return
		default:
			h.log.Warn("cannot accept a connection", "on", ln.Addr().String(), "err", err)
			h.sleep(pause.next())
		}
	}
}

// hold serves one connection and closes it.
func (h *host) hold(nc net.Conn, serve func(net.Conn)) {
	if !h.keep(nc) {
		return
	}
	defer h.release(nc)
	serve(nc)
}

// sleep waits for d, or less when the socket closes.
func (h *host) sleep(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-h.ctx.Done():
	}
}
