package api

import (
	"context"
	"net"
	"net/http"
	"syscall"

	"golang.org/x/sys/unix"
)

// link is a client's connection, for writes that may not block. net/http knows nothing of them: they go out
// between its own writes, framed as the chunks it would have made.
type link struct {
	conn net.Conn
	raw  syscall.RawConn
	// What try works with; kept, so that a write allocates nothing. One request uses a connection at once.
	buf []byte
	n   int
	err error
	try func(fd uintptr) bool
}

type linkKey struct{}

// ConnContext is for http.Server.ConnContext. Without it streams are written by their own goroutines, which
// costs half as much again.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return ctx
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return ctx // the connection is closed already; reading it will tell
	}
	l := &link{conn: c, raw: raw}
	l.try = l.tryNow
	return context.WithValue(ctx, linkKey{}, l)
}

// linkOf is the link of a request whose answer can be framed by hand: chunked, as HTTP/1.1 streams are.
func linkOf(r *http.Request) *link {
	l, _ := r.Context().Value(linkKey{}).(*link)
	if r.ProtoMajor != 1 || r.ProtoMinor != 1 {
		return nil
	}
	return l
}

// write writes what the socket takes now.
func (l *link) write(b []byte) (n int, err error) {
	l.buf, l.n, l.err = b, 0, nil
	err = l.raw.Write(l.try)
	l.buf = nil
	if err == nil {
		err = l.err
	}
	return l.n, err
}

// tryNow always returns true: whoever would have to wait is somebody else.
func (l *link) tryNow(fd uintptr) bool {
	for {
		n, err := unix.Write(int(fd), l.buf)
		switch err {
		case nil:
			l.n = n
		case unix.EINTR:
			continue
		case unix.EAGAIN:
		default:
			l.err = err
		}
		return true
	}
}

// frameRoom is the space before a chunk's data for its length: 8 hex digits and a line end.
const frameRoom = 10

// frame makes b, whose first frameRoom bytes are free, one HTTP chunk.
func frame(b []byte) []byte {
	const digits = "0123456789abcdef"
	at := frameRoom - 2
	b[at], b[at+1] = '\r', '\n'
	for n := len(b) - frameRoom; ; n >>= 4 {
		at--
		b[at] = digits[n&15]
		if n < 16 {
			break
		}
	}
	return append(b, '\r', '\n')[at:]
}
