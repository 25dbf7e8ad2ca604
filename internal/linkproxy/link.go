package linkproxy

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A client whose upstream refused has one second to send its request line, counted in waits: when the machine
// itself stood still, one wait has expired and not all, and the client gets to run before it is given up. The
// log misses a request that comes later, so the second is far above what a client on a busy machine takes. It
// is not longer because a connection that idles in a client's pool looks like a living engine until its reset.
const (
	refusedWait  = 100 * time.Millisecond
	refusedWaits = 10
)

// link is one client's connection and the connection to the upstream that belongs to it.
type link struct {
	p      *Proxy
	client *net.TCPConn
	// done is closed by shut: it ends waits that are not on a socket.
	done chan struct{}
	// broken is set when the upstream did not take bytes: its side ends with a reset, however the reading
	// side sees it.
	broken atomic.Bool

	mu       sync.Mutex // guards the fields below
	upstream *net.TCPConn
	closed   bool
	dialog   dialog
	opaque   bool      // the dialog's was counted
	open     []request // the dialog's requests that have not ended, in order
}

// request is a ledger entry of a request that has not ended.
type request struct {
	n     int
	probe bool
}

func newLink(p *Proxy, client *net.TCPConn) *link {
	return &link{p: p, client: client, done: make(chan struct{}), dialog: newDialog()}
}

// run serves the link to its end. It owns both sockets and the second pump.
func (l *link) run() {
	defer l.shut()
	if !l.p.gate.pass(0, l.done) {
		return
	}
	upstream, err := l.p.dial()
	if err != nil {
		if l.p.ctx.Err() == nil {
			l.refuse()
		}
		return
	}
	if !l.attach(upstream) {
		upstream.Close()
		return
	}
	var down sync.WaitGroup
	down.Go(func() { l.endDown(newPump(l, upstream, l.client, false).run()) })
	l.endUp(newPump(l, l.client, upstream, true).run())
	down.Wait()
	// An upstream that did not take the client's bytes did not get them: the client must not believe so.
	if l.broken.Load() {
		reset(l.client)
	}
}

// attach hands the upstream connection to the link; false if the link was shut meanwhile.
func (l *link) attach(upstream *net.TCPConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.upstream = upstream
	return true
}

// shut closes both sockets, which ends both pumps. Idempotent.
func (l *link) shut() {
	l.end(proxyClosed) // counts only if nothing else ended the link
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.closed = true
	close(l.done)
	l.client.Close()
	if l.upstream != nil {
		l.upstream.Close()
	}
}

// endUp is told why nothing more comes from the client or goes to the upstream.
func (l *link) endUp(why error) {
	switch {
	case errors.As(why, new(writeError)):
		// Not the end of the other direction: an answer may still be on its way. The reading side of the
		// upstream ends by itself, because only a dead connection refuses bytes.
		l.broken.Store(true)
	case why == io.EOF:
		l.mu.Lock()
		l.dialog.clientLeft()
		l.mu.Unlock()
		l.upstream.CloseWrite()
	default:
		l.end(clientGone)
		reset(l.upstream)
	}
}

// endDown is told why nothing more comes from the upstream or goes to the client.
func (l *link) endDown(why error) {
	switch {
	case errors.As(why, new(writeError)):
		l.end(clientGone)
		reset(l.upstream)
		reset(l.client)
	case why == io.EOF && !l.broken.Load():
		l.end(upstreamClosed)
		l.client.CloseWrite()
	default:
		l.end(upstreamReset)
		reset(l.client)
	}
}

// reset closes a connection with a RST in place of a FIN.
func reset(c *net.TCPConn) {
	c.SetLinger(0)
	c.Close()
}

// refuse gives a client whose upstream takes no connection what comes closest to a refusal, after it has
// seen what the client wanted.
func (l *link) refuse() {
	l.p.refused.Add(1)
	if l.p.http {
		l.hear()
	}
	l.end(upstreamRefused)
	reset(l.client)
}

// hear reads from a client whose upstream refused until it is known what the client wants, or that it will
// not say. A hold keeps what it says, and its end.
func (l *link) hear() {
	buf := make([]byte, 4<<10)
	for waits := 0; waits < l.p.refusedWaits && !l.heard(); {
		l.client.SetReadDeadline(time.Now().Add(refusedWait))
		n, err := l.client.Read(buf)
		if !l.p.gate.pass(n, l.done) {
			return
		}
		l.request(buf[:n])
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			waits++
		case err != nil:
			return
		}
	}
}

// heard reports whether a request line has been seen, or what cannot become one.
func (l *link) heard() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.open) > 0 || l.dialog.opaque
}

// request tells the log of bytes that are about to go up.
func (l *link) request(b []byte) {
	if l.p.http {
		l.note(func(now int64) { l.dialog.request(now, b) })
	}
}

// response tells the log of bytes that went down.
func (l *link) response(b []byte) {
	if l.p.http {
		l.note(func(now int64) { l.dialog.response(now, b) })
	}
}

func (l *link) end(why ending) {
	l.note(func(now int64) { l.dialog.end(now, why) })
}

// note lets f tell the dialog something and carries what follows from it to the ledger.
func (l *link) note(f func(now int64)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(l.p.now())
	for _, c := range l.dialog.changes {
		if c.begin {
			n := l.p.ledger.begin(c)
			l.open = append(l.open, request{n, c.method == "GET"})
			continue
		}
		l.p.ledger.end(l.open[0].n, l.open[0].probe, c)
		l.open = l.open[1:]
	}
	l.dialog.changes = l.dialog.changes[:0]
	if l.dialog.opaque && !l.opaque {
		l.opaque = true
		l.p.opaque.Add(1)
		l.p.log.Debug("connection is not followed any more", "client", l.client.RemoteAddr().String())
	}
}

// unread is how many bytes wait in the kernel for this link to read them, in both directions.
func (l *link) unread() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	total := int64(0)
	for _, c := range []*net.TCPConn{l.client, l.upstream} {
		if c == nil {
			continue
		}
		raw, err := c.SyscallConn()
		if err != nil {
			continue
		}
		// A closed connection has nothing waiting.
		_ = raw.Control(func(fd uintptr) {
			if n, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ); err == nil {
				total += int64(n)
			}
		})
	}
	return total
}
