package disrupt

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"fleetdrill/internal/clock"
	"fleetdrill/mockworker/faults"
)

// Port is a listening socket that a fault can close, turn into a black hole, or make reset whoever comes.
// It is a net.Listener whose Accept outlives that.
type Port struct {
	addr   *net.TCPAddr
	faults *faults.Set
	log    *slog.Logger

	mu sync.Mutex // guards everything below
	// socket is nil while the port is closed.
	socket *net.TCPListener
	now    faults.Listening
	// held are the connections that a black hole took. When it is healed they are served, as after a
	// partition, in the order in which they came.
	held []net.Conn
	back []net.Conn // held ones to hand out again
	open map[net.Conn]struct{}
	// changed is closed, and replaced, whenever Accept has to look again.
	changed chan struct{}
	closed  bool
}

// maxHeld bounds the connections of a black hole; further ones wait in the socket's backlog, which looks
// the same from outside.
const maxHeld = 1024

// Listen binds an address.
func Listen(addr string, f *faults.Set, log *slog.Logger) (*Port, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("binding: %w", err)
	}
	tcp, ok := ln.(*net.TCPListener)
	if !ok {
		return nil, errors.Join(fmt.Errorf("binding %s: %T is no TCP socket", addr, ln), ln.Close())
	}
	p := &Port{faults: f, log: log, socket: tcp, open: map[net.Conn]struct{}{}, changed: make(chan struct{})}
	p.addr, _ = tcp.Addr().(*net.TCPAddr)
	return p, nil
}

// Addr implements net.Listener. It stays the same while the port is closed.
func (p *Port) Addr() net.Addr { return p.addr }

// Accept implements net.Listener: the next connection to be served.
func (p *Port) Accept() (net.Conn, error) {
	for {
		socket, conn, wait, err := p.look()
		switch {
		case err != nil || conn != nil:
			return conn, err
		case socket == nil:
			<-wait
			continue
		}
		conn, err = socket.Accept()
		if err == nil {
			if p.take(conn) {
				return conn, nil
			}
			continue
		}
		if !p.stale(socket) && !errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, err
		}
	}
}

// look says what Accept has to do next: hand out conn, accept on socket, or wait.
func (p *Port) look() (socket *net.TCPListener, conn net.Conn, wait <-chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return nil, nil, nil, net.ErrClosed
	case len(p.back) > 0:
		conn, p.back = p.back[0], p.back[1:]
		return nil, conn, nil, nil
	case p.socket == nil || p.now.Mode == faults.ModeBlackhole && len(p.held) >= maxHeld:
		return nil, nil, p.changed, nil
	}
	_ = p.socket.SetDeadline(time.Time{}) // an earlier one only made Accept look again
	return p.socket, nil, nil, nil
}

// stale says that a socket is no longer the port's.
func (p *Port) stale(socket *net.TCPListener) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.socket != socket
}

// take says whether a new connection is to be served; otherwise it has been dealt with.
func (p *Port) take(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch p.now.Mode {
	case faults.ModeBlackhole:
		p.held = append(p.held, c)
		p.faults.Note(p.now.ID, "connection from "+c.RemoteAddr().String())
		return false
	case faults.ModeReset, faults.ModeClosed:
		// Closed, and yet here: it came while the socket was being closed.
		p.faults.Note(p.now.ID, "connection from "+c.RemoteAddr().String())
		resetConn(c)
		return false
	}
	return true
}

func resetConn(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // an error means that the client was quicker
	}
	_ = c.Close()
}

// ConnState is for http.Server.ConnState, by which the port knows the connections that are open.
func (p *Port) ConnState(c net.Conn, s http.ConnState) {
	if s != http.StateNew && s != http.StateClosed && s != http.StateHijacked {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if s == http.StateNew {
		p.open[c] = struct{}{}
	} else {
		delete(p.open, c)
	}
}

// Apply does what the faults say now, and returns when to look again at the latest, 0 for not before
// something changes. A port that cannot be bound again, because somebody else has it, is tried again soon.
func (p *Port) Apply() (again int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return 0
	}
	next := p.faults.Listening(clock.MonoNs())
	if next.ID != p.now.ID {
		p.change(next)
	}
	if p.socket == nil && p.now.Mode != faults.ModeClosed {
		if err := p.rebind(); err != nil {
			p.log.Warn("the API port cannot be opened again yet", "err", err)
			return clock.MonoNs() + int64(rebindEvery)
		}
	}
	return p.now.Until
}

// rebindEvery is how often a port is tried that somebody else has taken.
const rebindEvery = 100 * time.Millisecond

func (p *Port) change(next faults.Listening) {
	if p.now.Mode == faults.ModeBlackhole {
		p.back, p.held = append(p.back, p.held...), nil
	}
	p.now = next
	switch {
	case next.Mode == faults.ModeClosed && p.socket != nil:
		// Its error would be that of a socket that is closed already.
		_ = p.socket.Close()
		p.socket = nil
		p.faults.Note(next.ID, fmt.Sprintf("port %d closed", p.addr.Port))
	case next.Mode != "":
		p.faults.Note(next.ID, fmt.Sprintf("port %d is a %s", p.addr.Port, modeNames[next.Mode]))
	}
	if next.CloseExisting && len(p.open) > 0 {
		p.faults.Note(next.ID, fmt.Sprintf("%d open connections closed", len(p.open)))
		for c := range p.open {
			_ = c.Close() // its server notices
		}
	}
	p.kick()
}

var modeNames = map[string]string{faults.ModeBlackhole: "black hole", faults.ModeReset: "source of resets"}

// kick makes Accept look again.
func (p *Port) kick() {
	close(p.changed)
	p.changed = make(chan struct{})
	if p.socket != nil {
		_ = p.socket.SetDeadline(time.Unix(1, 0)) // fails only when it is closed, and then Accept looks anyway
	}
}

func (p *Port) rebind() error {
	ln, err := net.ListenTCP("tcp", p.addr)
	if err != nil {
		return fmt.Errorf("binding: %w", err)
	}
	p.socket = ln
	p.kick()
	return nil
}

// Close implements net.Listener.
func (p *Port) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	for _, c := range append(p.held, p.back...) {
		_ = c.Close() // nobody will read it
	}
	p.held, p.back = nil, nil
	p.kick()
	if p.socket == nil {
		return nil
	}
	return p.socket.Close()
}
