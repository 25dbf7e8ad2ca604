package zsock

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"fleetdrill/internal/clock"
)

const (
	// bufferSize is what one syscall moves at most: 64 KB hold 32 messages of 2 KB.
	bufferSize = 64 << 10
	// greetingSize is the length of a ZMTP 3 greeting in bytes.
	greetingSize = 64
	// maxHandshake bounds the READY command in bytes. libzmq's own is under 300.
	maxHandshake = 8 << 10
)

// socket is the unbuffered side of a connection: it applies the deadlines, one per syscall.
type socket struct {
	nc           net.Conn
	writeTimeout time.Duration // for one flush; 0 = none

	// wait is how long one read waits before silent is asked whether to go on; 0 = for ever. The count
	// of waits in a row is what makes a peer gone, not one long deadline: when this process itself was
	// stopped, its timer has expired while bytes are there to be read, and the next wait finds them.
	wait   time.Duration
	silent func(misses int) error

	readAt int64 // when the newest bytes came off the socket, mono ns
}

func (s *socket) Read(p []byte) (int, error) {
	for misses := 1; ; misses++ {
		if s.wait > 0 {
			if err := s.nc.SetReadDeadline(time.Now().Add(s.wait)); err != nil {
				return 0, err
			}
		}
		n, err := s.nc.Read(p)
		if n > 0 {
			s.readAt = clock.MonoNs()
			return n, nil
		}
		if s.wait == 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return 0, err
		}
		if err := s.silent(misses); err != nil {
			return 0, err
		}
	}
}

func (s *socket) Write(p []byte) (int, error) {
	if s.writeTimeout > 0 {
		if err := s.nc.SetWriteDeadline(time.Now().Add(s.writeTimeout)); err != nil {
			return 0, err
		}
	}
	return s.nc.Write(p)
}

// wire is the net.Conn given to the library: buffered both ways. During the handshake every write is
// flushed and every read is checked; afterwards the writer goroutine flushes when it has nothing left.
type wire struct {
	net.Conn // close, deadlines, addresses
	sock     *socket
	in       *bufio.Reader
	out      *bufio.Writer

	opening bool
	seen    int  // bytes of the peer's greeting handed to the library
	checked bool // the header behind the greeting was judged
}

func newWire(nc net.Conn) *wire {
	s := &socket{nc: nc}
	return &wire{
		Conn: nc, sock: s, opening: true,
		in: bufio.NewReaderSize(s, bufferSize), out: bufio.NewWriterSize(s, bufferSize),
	}
}

func (w *wire) Write(p []byte) (int, error) {
	n, err := w.out.Write(p)
	if err == nil && w.opening {
		err = w.out.Flush()
	}
	return n, err
}

// Read serves the library's handshake, the only part of it that reads. The library allocates whatever the
// first frame after the greeting claims to hold, so that frame is judged before the library sees it, and not
// sooner: until the greeting is read, our own READY, for which the peer may be waiting, is not sent.
func (w *wire) Read(p []byte) (int, error) {
	if w.seen < greetingSize {
		n, err := w.in.Read(p[:min(len(p), greetingSize-w.seen)])
		w.seen += n
		return n, err
	}
	if !w.checked {
		w.checked = true
		if err := w.checkReady(); err != nil {
			return 0, err
		}
	}
	return w.in.Read(p)
}

// checkReady waits for the header of the frame behind the greeting.
func (w *wire) checkReady() error {
	flags, size, _, err := peekHeader(w.in)
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	if err != nil {
		return err
	}
	if flags&^flagLong != flagCommand || size < 0 || size > maxHandshake {
		return fmt.Errorf("%w: handshake opens with flags %#02x and %d bytes", errBadFrame, flags, uint64(size))
	}
	return nil
}
