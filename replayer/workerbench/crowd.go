package workerbench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// crowd reads the streams of many connections on one thread, which waits for all of them at once: a step of
// the subject makes a thousand of them readable within milliseconds. A goroutine each would cost two reads and
// a wake-up for every token, on the cores that the subject needs, and the order in which they run would be
// part of every gap. Here a token costs one read, and its time is taken right after.
type crowd struct {
	epoll   int
	members []member
	buf     []byte
}

// member is one connection of a crowd.
type member struct {
	fd   int // -1 when its stream is over
	seen gaps
}

// newCrowd dials n connections, on each of which about so many tokens are expected. They do not belong to Go's
// own poller, which would be woken for every token too.
func newCrowd(ctx context.Context, addr string, n, tokens int) (c *crowd, err error) {
	c = &crowd{members: make([]member, 0, n), buf: make([]byte, 64<<10)}
	if c.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("making an epoll set: %w", err)
	}
	for i := range n {
		fd, err := dialFD(ctx, addr)
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		c.members = append(c.members, member{fd: fd, seen: gaps{ns: make([]int64, 0, tokens)}})
		if err := unix.EpollCtl(c.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(i)}); err != nil {
			return nil, errors.Join(fmt.Errorf("watching a connection: %w", err), c.close())
		}
	}
	return c, nil
}

// dialFD connects and takes the socket out of its net.Conn.
func dialFD(ctx context.Context, addr string) (fd int, err error) {
	d := net.Dialer{Timeout: dialTimeout}
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return -1, fmt.Errorf("connecting to %s: %w", addr, err)
	}
	defer conn.Close()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return -1, fmt.Errorf("connecting to %s: %w", addr, err)
	}
	fd, dup := -1, error(nil)
	err = raw.Control(func(orig uintptr) { fd, dup = unix.FcntlInt(orig, unix.F_DUPFD_CLOEXEC, 0) })
	if err = errors.Join(err, dup); err != nil {
		return -1, fmt.Errorf("connecting to %s: %w", addr, err)
	}
	return fd, nil
}

// send writes a request to each connection.
func (c *crowd) send(request []byte) error {
	for i := range c.members {
		if n, err := unix.Write(c.members[i].fd, request); err != nil || n < len(request) {
			return fmt.Errorf("sending a request: %d of %d bytes: %w", n, len(request), err)
		}
	}
	return nil
}

// run sends a request on each connection and reads the answers.
func (c *crowd) run(ctx context.Context, request []byte) error {
	if err := c.send(request); err != nil {
		return err
	}
	return c.follow(ctx)
}

// look is how often a crowd without news looks whether it is to stop, in ms.
const look = 100

// follow reads all streams to their ends.
func (c *crowd) follow(ctx context.Context) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	events := make([]unix.EpollEvent, len(c.members))
	for open := len(c.members); open > 0; {
		n, err := unix.EpollWait(c.epoll, events, look)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("waiting for streams: %w", err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		for _, e := range events[:max(n, 0)] {
			m := &c.members[e.Fd]
			over, err := m.read(c.buf)
			if err != nil {
				return err
			}
			if over {
				open--
				if err := m.close(); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// read takes what a readable connection has. What is left, because there was more than buf holds, makes it
// readable again.
func (m *member) read(buf []byte) (over bool, err error) {
	n, err := unix.Read(m.fd, buf)
	now := time.Now()
	switch {
	case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("reading an answer: %w", err)
	case n == 0 && m.seen.done: // an answer that ends with its connection
		return true, nil
	case n == 0:
		return false, fmt.Errorf("reading an answer: %w", io.ErrUnexpectedEOF)
	}
	return m.seen.take(now, buf[:n])
}

func (m *member) close() error {
	fd := m.fd
	m.fd = -1
	if fd < 0 {
		return nil
	}
	return unix.Close(fd)
}

func (c *crowd) close() (err error) {
	for i := range c.members {
		err = errors.Join(err, c.members[i].close())
	}
	return errors.Join(err, unix.Close(c.epoll))
}

// gaps is what one stream saw.
type gaps struct {
	ns     []int64
	tokens int64
	last   time.Time
	head   []byte // the answer's first bytes, until its status is known
	known  bool
	carry  []byte // the last bytes read, as many as a mark has: one may continue
	done   bool
}

var (
	// contentMark stands once in every chunk that carries a token, in the chat shape of OpenAI. The first
	// chunk of a stream has a role and an empty content, and counts as none.
	contentMark = []byte(`"content":"`)
	// doneMark is the last event; lastChunk is behind it.
	doneMark  = []byte("data: [DONE]")
	lastChunk = []byte("0\r\n\r\n")
)

// take notes the bytes that one read brought at now. What arrives in one read arrived together and has one
// gap before it. Marks are looked for in the bytes as they came: a server that writes each event as one chunk
// never cuts one by the chunk's frame.
func (g *gaps) take(now time.Time, b []byte) (over bool, err error) {
	if !g.known {
		if err := g.status(b); err != nil {
			return false, err
		}
	}
	if len(g.carry) > 0 {
		b = append(g.carry, b...)
	}
	if got := contents(b); got > 0 {
		g.token(now, got)
	}
	g.done = g.done || bytes.Contains(b, doneMark)
	over = g.done && bytes.HasSuffix(b, lastChunk)
	g.carry = append(g.carry[:0], b[max(0, len(b)-len(contentMark)):]...) // b may lie there: it is read no more
	return over, nil
}

// status reads the first line of the answer.
func (g *gaps) status(b []byte) error {
	const ok = "HTTP/1.1 200"
	g.head = append(g.head, b...)
	if len(g.head) < len(ok) {
		return nil
	}
	if string(g.head[:len(ok)]) != ok {
		return fmt.Errorf("%w: %q", errStatus, g.head[:min(len(g.head), 300)])
	}
	g.head, g.known = nil, true
	return nil
}

// contents counts the marks with something behind them. A mark at the very end waits for more.
func contents(b []byte) (n int64) {
	for {
		_, after, ok := bytes.Cut(b, contentMark)
		if !ok || len(after) == 0 {
			return n
		}
		if after[0] != '"' {
			n++
		}
		b = after
	}
}

// token notes n tokens that came at now. Gaps begin with the second, so that they say how even the stream
// is and not how long the prompt took.
func (g *gaps) token(now time.Time, n int64) {
	if g.tokens > 0 {
		g.ns = append(g.ns, int64(now.Sub(g.last)))
	}
	g.tokens, g.last = g.tokens+n, now
}
