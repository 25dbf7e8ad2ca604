package zsock

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/go-zeromq/zmq4"
	"github.com/go-zeromq/zmq4/security/null"
)

// The peers of this file misbehave, or are made of the library alone, so that no code under test is on
// both ends of the connection.

// address is what package net dials for a tcp endpoint.
func address(endpoint string) string { return strings.TrimPrefix(endpoint, "tcp://") }

// rawDial connects and says nothing.
func rawDial(t testing.TB, endpoint string) net.Conn {
	t.Helper()
	nc, err := net.Dial("tcp", address(endpoint))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	if deadline, ok := within(t).Deadline(); ok {
		_ = nc.SetReadDeadline(deadline)
	}
	return nc
}

// rawPeer connects and completes the handshake as a socket of the given type.
func rawPeer(t testing.TB, endpoint string, kind zmq4.SocketType) (net.Conn, *zmq4.Conn) {
	t.Helper()
	nc := rawDial(t, endpoint)
	return nc, rawOpen(t, nc, kind, false)
}

func rawOpen(t testing.TB, nc net.Conn, kind zmq4.SocketType, server bool) *zmq4.Conn {
	t.Helper()
	conn, err := zmq4.Open(nc, null.Security(), kind, nil, server, nil)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// rawSubscriber is a subscriber to everything that the publisher knows of and that reads nothing by itself.
func rawSubscriber(t testing.TB, pub *Pub, endpoint string) *zmq4.Conn {
	t.Helper()
	_, conn := rawPeer(t, endpoint, zmq4.Sub)
	subscribeRaw(t, conn)
	return conn
}

func subscribeRaw(t testing.TB, conn *zmq4.Conn) {
	t.Helper()
	if err := conn.SendMsg(zmq4.NewMsg([]byte{1})); err != nil {
		t.Fatal(err)
	}
	// The answer to a PING behind the subscription proves that it was read.
	if err := conn.SendCmd(zmq4.CmdPing, []byte{0, 0, 'c', 't', 'x'}); err != nil {
		t.Fatal(err)
	}
	cmd, err := conn.RecvCmd()
	if err != nil || cmd.Name != zmq4.CmdPong || string(cmd.Body) != "ctx" {
		t.Fatalf("PING was answered with %q %q, %v", cmd.Name, cmd.Body, err)
	}
}

// greeting is the ZMTP 3.0 greeting of a NULL peer.
func greeting() []byte {
	g := make([]byte, greetingSize)
	g[0], g[9], g[10] = 0xff, 0x7f, 3
	copy(g[12:], "NULL")
	return g
}

// expectClosed waits for the other side to close, whatever it sends before.
func expectClosed(t testing.TB, nc net.Conn) {
	t.Helper()
	_, err := io.Copy(io.Discard, nc)
	if ne, ok := err.(net.Error); ok && ne.Timeout() {
		t.Error("the connection was not closed")
	}
}

// fakePeer listens and hands every connection to serve, after the handshake, on a goroutine of its own.
func fakePeer(t testing.TB, kind zmq4.SocketType, serve func(net.Conn, *zmq4.Conn)) (endpoint string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := newHost(nil)
	h.keep(ln)
	t.Cleanup(func() { _ = h.close() })
	h.start(func() {
		h.accept(ln, func(nc net.Conn) {
			if conn, err := zmq4.Open(nc, null.Security(), kind, nil, true, nil); err == nil {
				serve(nc, conn)
			}
		})
	})
	return "tcp://" + ln.Addr().String()
}

// relay forwards TCP to one upstream, until shut: then every connection stays and nothing gets through, in
// either direction, as in a network partition.
type relay struct {
	upstream string
	host     *host

	mu   sync.Mutex
	open *sync.Cond
	shut bool
}

func newRelay(t testing.TB, upstream string) (*relay, string) {
	t.Helper()
	r := &relay{upstream: upstream, host: newHost(nil)}
	r.open = sync.NewCond(&r.mu)
	bound, err := r.host.bind("tcp://*:*", r.serve)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.heal()
		_ = r.host.close()
	})
	return r, bound
}

func (r *relay) serve(down net.Conn) {
	up, err := net.Dial("tcp", address(r.upstream))
	if err != nil || !r.host.keep(up) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { r.pump(up, down) })
	both.Go(func() { r.pump(down, up) })
	both.Wait()
	r.host.release(up)
}

func (r *relay) pump(to, from net.Conn) {
	defer to.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		r.mu.Lock()
		for r.shut {
			r.open.Wait()
		}
		r.mu.Unlock()
		if err != nil {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (r *relay) partition() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shut = true
}

func (r *relay) heal() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shut = false
	r.open.Broadcast()
}
