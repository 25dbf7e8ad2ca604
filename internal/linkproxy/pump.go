package linkproxy

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

const (
	// chunkSize is the most that one read moves, in bytes.
	chunkSize = 32 << 10
	// maxLate is how many chunks wait at most for their time under a Delay, per direction: 8 MB. Beyond
	// it the sender feels the delay as a full window.
	maxLate = 256
)

// chunk is a piece of a stream on its way.
type chunk struct {
	buf [chunkSize]byte
	n   int
	due time.Time // when it may go on, under a Delay
}

// writeError marks an error of the side that a pump writes to.
type writeError struct{ err error }

func (e writeError) Error() string { return "forwarding: " + e.err.Error() }
func (e writeError) Unwrap() error { return e.err }

// pump moves one direction of a link.
type pump struct {
	l        *link
	src, dst *net.TCPConn
	up       bool
	raw      syscall.RawConn
	// late are the chunks that wait for their time, in order.
	late []*chunk

	// readReady is p.tryRead, bound once; got and err are its results.
	readReady func(fd uintptr) bool
	got       *chunk
	err       error
}

func newPump(l *link, src, dst *net.TCPConn, up bool) *pump {
	p := &pump{l: l, src: src, dst: dst, up: up}
	p.readReady = p.tryRead
	return p
}

// run moves bytes until one side ends. It returns io.EOF when the source closed its side, a writeError
// when the destination took no more, another error when the source was reset or closed.
func (p *pump) run() (err error) {
	if p.raw, err = p.src.SyscallConn(); err != nil {
		return err
	}
	for {
		if !p.l.p.gate.pass(0, p.l.done) {
			return net.ErrClosed
		}
		c, err := p.next()
		if err != nil {
			return p.drain(err)
		}
		delay := time.Duration(p.l.p.delay.Load())
		switch {
		case c == nil:
			err = p.forwardFirst()
		case delay > 0 || len(p.late) > 0:
			p.postpone(c, delay)
		default:
			err = p.forward(c)
		}
		if err != nil {
			return err
		}
	}
}

// next reads a chunk; it returns nil when the first late chunk is due before one comes.
func (p *pump) next() (*chunk, error) {
	if len(p.late) == 0 {
		return p.read()
	}
	due := p.late[0].due
	if len(p.late) >= maxLate {
		return nil, p.sleepUntil(due)
	}
	if err := p.src.SetReadDeadline(due); err != nil {
		return nil, err
	}
	c, err := p.read()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, p.src.SetReadDeadline(time.Time{})
	}
	return c, err
}

// read waits until the source is readable and only then takes a buffer, so that idle connections hold
// none.
func (p *pump) read() (*chunk, error) {
	if err := p.raw.Read(p.readReady); err != nil {
		return nil, err
	}
	return p.got, p.err
}

// tryRead reads once; false means that nothing is there yet.
func (p *pump) tryRead(fd uintptr) bool {
	c := p.l.p.chunks.Get().(*chunk)
	n, err := syscall.Read(int(fd), c.buf[:])
	for err == syscall.EINTR {
		n, err = syscall.Read(int(fd), c.buf[:])
	}
	p.got, p.err = c, err
	if err == nil && n > 0 {
		c.n = n
		return true
	}
	p.l.p.chunks.Put(c)
	p.got = nil
	if err == nil {
		p.err = io.EOF
	}
	return err != syscall.EAGAIN
}

// postpone queues a chunk for its time, which is not before the one in front of it.
func (p *pump) postpone(c *chunk, delay time.Duration) {
	c.due = time.Now().Add(delay)
	if n := len(p.late); n > 0 && p.late[n-1].due.After(c.due) {
		c.due = p.late[n-1].due
	}
	p.late = append(p.late, c)
}

// drain forwards what is late, each chunk at its time, before the end that came behind it goes on. A hold
// holds ends too.
func (p *pump) drain(end error) error {
	for len(p.late) > 0 {
		if err := p.sleepUntil(p.late[0].due); err != nil {
			return err
		}
		if err := p.forwardFirst(); err != nil {
			return err
		}
	}
	p.l.p.gate.pass(0, p.l.done)
	return end
}

func (p *pump) sleepUntil(t time.Time) error {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-p.l.done:
		return net.ErrClosed
	}
}

func (p *pump) forwardFirst() error {
	c := p.late[0]
	p.late = p.late[1:]
	return p.forward(c)
}

// forward writes a chunk once the gate is open. A request is logged before it goes, so that its response
// cannot be logged first; a response is logged after it went, so that logging never keeps a client
// waiting.
func (p *pump) forward(c *chunk) error {
	defer p.l.p.chunks.Put(c)
	if !p.l.p.gate.pass(c.n, p.l.done) {
		return net.ErrClosed
	}
	b := c.buf[:c.n]
	if p.up {
		p.l.request(b)
	}
	n, err := p.dst.Write(b)
	if p.up {
		p.l.p.bytesUp.Add(int64(n))
	} else {
		p.l.p.bytesDown.Add(int64(n))
		p.l.response(b[:n])
	}
	if err != nil {
		return writeError{err}
	}
	return nil
}
