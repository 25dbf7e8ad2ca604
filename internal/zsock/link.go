package zsock

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/go-zeromq/zmq4/security/null"
)

const (
	// handshakeTimeout is how long a peer may take from connecting to READY.
	handshakeTimeout = 3 * time.Second
	// batchSize is how many messages the writer takes at a time: enough that the outbox's mutex costs
	// nothing per message, few enough that a PONG is never far behind.
	batchSize = 64
	// maxPingContext is the most of a PING's context that its PONG returns (ZMTP 3.1).
	maxPingContext = 16
)

// linkOptions is what tells one kind of connection from another.
type linkOptions struct {
	kind         zmq4.SocketType
	server       bool  // this side accepted the connection
	hwm          int   // of the outbox, in messages; 0 = unlimited
	most         int   // messages in the outbox that end the connection; 0 = none do
	max          int64 // bytes in one incoming message
	writeTimeout time.Duration
}

// link is one connection past its handshake. Its reader is the goroutine that calls run, which starts the
// one writer; everyone else only touches out and fail.
type link struct {
	wire   *wire
	conn   *zmq4.Conn
	frames frameReader
	out    *outbox

	once  sync.Once
	cause error // why the link ended; written once, read after run's two goroutines are done
}

// openLink performs the handshake on a new connection. On an error nc is closed.
func openLink(nc net.Conn, o linkOptions) (*link, error) {
	tune(nc)
	w := newWire(nc)
	err := nc.SetDeadline(time.Now().Add(handshakeTimeout))
	var conn *zmq4.Conn
	if err == nil {
		conn, err = handshake(w, o)
	}
	if err == nil {
		err = nc.SetDeadline(time.Time{})
	}
	if err != nil {
		_ = nc.Close()
		return nil, fmt.Errorf("handshake with %s: %w", nc.RemoteAddr(), err)
	}
	w.opening = false
	w.sock.writeTimeout = o.writeTimeout
	l := &link{wire: w, conn: conn, out: newOutbox(o.hwm), frames: frameReader{r: w.in, max: o.max}}
	l.out.most = o.most
	return l, nil
}

// handshake runs the library's, which panics on a READY command with a torn property and on a socket type
// it does not know. Both are the peer's doing and must not end this process.
func handshake(w *wire, o linkOptions) (conn *zmq4.Conn, err error) {
	defer func() {
		if r := recover(); r != nil {
			conn, err = nil, fmt.Errorf("%w: %v", errBadFrame, r)
		}
	}()
	return zmq4.Open(w, null.Security(), o.kind, nil, o.server, nil)
}

// run serves the link until it fails, and returns why. handle sees, on the calling goroutine, every message
// and every command but PING, and when it returns an error the link ends with it. With ping > 0 a PING is
// sent at once and then every ping.
func (l *link) run(ping time.Duration, handle func(incoming) error) error {
	var writer sync.WaitGroup
	writer.Go(func() { l.fail(l.write(ping)) })
	l.fail(l.read(handle))
	writer.Wait()
	return l.cause
}

// fail ends the link. The first cause is the one reported: what follows is its consequence.
func (l *link) fail(err error) {
	l.once.Do(func() {
		l.cause = err
		l.out.close()
		_ = l.wire.Close()
	})
}

func (l *link) read(handle func(incoming) error) error {
	for {
		in, err := l.frames.next()
		switch {
		case err == io.EOF:
			return errors.New("closed by the peer")
		case err != nil:
			return fmt.Errorf("reading from the peer: %w", err)
		case in.command == zmq4.CmdPing:
			err = l.answer(in.body)
		case in.command == zmq4.CmdError:
			err = fmt.Errorf("the peer reports an error: %q", in.body)
		default:
			err = handle(in)
		}
		if err != nil {
			return err
		}
	}
}

// answer owes the peer a PONG. The body of a PING is a time to live of 2 bytes, which asks for nothing that
// TCP keepalive does not do already, and a context to return.
func (l *link) answer(ping []byte) error {
	if len(ping) < 2 {
		return fmt.Errorf("%w: PING of %d bytes", errBadFrame, len(ping))
	}
	context := ping[2:]
	l.out.command(zmq4.CmdPong, context[:min(len(context), maxPingContext)])
	return nil
}

// write is the writer. It flushes only when the outbox is empty, so that a burst leaves in few syscalls and
// a single message leaves at once.
func (l *link) write(ping time.Duration) error {
	var tick <-chan time.Time
	if ping > 0 {
		ticker := time.NewTicker(ping)
		defer ticker.Stop()
		tick = ticker.C
	}
	batch := make([]message, batchSize)
	for {
		n, commands := l.out.take(batch)
		if err := l.writeBatch(batch[:n], commands); err != nil {
			return fmt.Errorf("writing to the peer: %w", err)
		}
		if n > 0 || len(commands) > 0 {
			continue
		}
		if err := l.wire.out.Flush(); err != nil {
			return fmt.Errorf("writing to the peer: %w", err)
		}
		select {
		case <-l.out.wake:
		case <-tick:
			l.ping()
		case <-l.out.done:
			return errors.New("closed")
		}
	}
}

func (l *link) writeBatch(batch []message, commands []command) error {
	for _, c := range commands {
		if err := l.conn.SendCmd(c.name, c.body); err != nil {
			return err
		}
	}
	for i, m := range batch {
		if err := l.conn.SendMsg(zmq4.Msg{Frames: m}); err != nil {
			return err
		}
		batch[i] = nil
		l.out.written.Add(1)
	}
	return nil
}

// ping queues a PING with a time to live of 0 (the peer should not close on our silence: a stopped consumer
// of a real engine is not closed either) and no context.
func (l *link) ping() { l.out.command(zmq4.CmdPing, []byte{0, 0}) }
