package zsock

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"testing"

	"github.com/go-zeromq/zmq4"
	"github.com/google/go-cmp/cmp"
)

func newBoundRouter(t testing.TB, o RouterOptions) (*Router, string) {
	t.Helper()
	r := closing(t, NewRouter(o))
	bound, err := r.Bind("tcp://*:*")
	if err != nil {
		t.Fatal(err)
	}
	return r, bound
}

func newDealer(t testing.TB, endpoint string) *Dealer {
	t.Helper()
	d, err := DialDealer(within(t), endpoint, DealerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return closing(t, d)
}

// answerAll answers every request with n replies of (empty, number, payload) and an end, until the router
// closes.
func answerAll(t testing.TB, r *Router, n int, payload []byte) {
	var server sync.WaitGroup
	server.Go(func() {
		for {
			q, err := r.Recv(context.Background())
			if err != nil {
				return
			}
			for i := range n {
				_ = q.Reply([]byte{}, []byte(strconv.Itoa(i)), payload)
			}
			_ = q.Reply(append([][]byte{{}, []byte("end")}, q.Frames...)...)
		}
	})
	t.Cleanup(func() {
		_ = r.Close()
		server.Wait()
	})
}

// A dealer's frames arrive as given, and with no high-water mark every reply comes back, to the one who asked.
func TestRouterDealer(t *testing.T) {
	router, endpoint := newBoundRouter(t, RouterOptions{})
	const n = 10_000
	answerAll(t, router, n, make([]byte, 2<<10))
	var dealers sync.WaitGroup
	for d := range 3 {
		dealer := newDealer(t, endpoint)
		dealers.Go(func() {
			if err := dealer.Send([]byte{}, []byte{byte(d)}); err != nil {
				t.Error(err)
			}
			for i := range n {
				m, err := dealer.Recv(within(t))
				if err != nil || len(m) != 3 || string(m[1]) != strconv.Itoa(i) {
					t.Errorf("reply %d: %d frames, %v", i, len(m), err)
					return
				}
			}
			m, err := dealer.Recv(within(t))
			if diff := cmp.Diff([][]byte{{}, []byte("end"), {}, {byte(d)}}, m); diff != "" || err != nil {
				t.Errorf("end (-want +got), %v:\n%s", err, diff)
			}
		})
	}
	dealers.Wait()
}

// With libzmq's mark of 1000, a large answer to a peer that reads slowly loses its tail, silently, as a
// real engine's replay does; a requester beside it loses nothing.
func TestRouterDropsAtHWM(t *testing.T) {
	router, endpoint := newBoundRouter(t, RouterOptions{HWM: 1000})
	const n = 20_000
	_, stopped := rawPeer(t, endpoint, zmq4.Dealer)
	if err := stopped.SendMsg(zmq4.NewMsgString("ask")); err != nil {
		t.Fatal(err)
	}
	q, err := router.Recv(within(t))
	if err != nil {
		t.Fatal(err)
	}
	payload := make([]byte, 2<<10)
	for i := range n {
		if err := q.Reply([]byte(strconv.Itoa(i)), payload); err != nil {
			t.Fatal(err)
		}
	}
	s := router.Stats()
	if s.Sent+s.Dropped != n || s.Dropped == 0 || s.Peers != 1 {
		t.Errorf("of %d replies: %+v", n, s)
	}
	healthy := newDealer(t, endpoint)
	answerAll(t, router, 100, payload)
	if err := healthy.Send([]byte("ask")); err != nil {
		t.Fatal(err)
	}
	for range 101 {
		if _, err := healthy.Recv(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	for range s.Sent {
		if _, err := stopped.RecvMsg(); err != nil {
			t.Fatal(err)
		}
	}
}

// Each side learns that the other is gone; what arrived before is not lost.
func TestRouterDealerGone(t *testing.T) {
	router, endpoint := newBoundRouter(t, RouterOptions{})
	dealer := newDealer(t, endpoint)
	if err := dealer.Send([]byte("1")); err != nil {
		t.Fatal(err)
	}
	q, err := router.Recv(within(t))
	if err != nil {
		t.Fatal(err)
	}
	_ = dealer.Close()
	eventually(t, "the reply has nowhere to go", func() bool { return errors.Is(q.Reply([]byte("x")), ErrPeerGone) })
	if _, err := dealer.Recv(within(t)); !errors.Is(err, ErrClosed) {
		t.Errorf("Recv after Close: %v", err)
	}

	said := make(chan struct{})
	gone := fakePeer(t, zmq4.Router, func(nc net.Conn, conn *zmq4.Conn) {
		_, _ = conn.RecvMsg()
		_ = conn.SendMsg(zmq4.NewMsgString("last words"))
		close(said)
	})
	other := newDealer(t, gone)
	if err := other.Send([]byte("1")); err != nil {
		t.Fatal(err)
	}
	<-said
	if m, err := other.Recv(within(t)); err != nil || string(m[0]) != "last words" {
		t.Errorf("received %q, %v", m, err)
	}
	if _, err := other.Recv(within(t)); !errors.Is(err, ErrPeerGone) {
		t.Errorf("Recv from a peer that left: %v", err)
	}
	if err := other.Send([]byte("2")); !errors.Is(err, ErrPeerGone) {
		t.Errorf("Send to a peer that left: %v", err)
	}
}

// Dialling ends with its context, also in the middle of a handshake, and fails on a peer that is no router.
func TestDialDealerFails(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, nobody answers
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error)
	go func() {
		_, err := DialDealer(ctx, "tcp://"+ln.Addr().String(), DealerOptions{})
		result <- err
	}()
	nc, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled dial: %v", err)
	}
	_, pub := newBoundPub(t, PubOptions{})
	for _, endpoint := range []string{pub, "tcp://*:1", "udp://127.0.0.1:1", "nonsense"} {
		if d, err := DialDealer(within(t), endpoint, DealerOptions{}); err == nil {
			t.Errorf("dialling %s succeeded", endpoint)
			_ = d.Close()
		}
	}
}

// Where nothing is lost, a peer that asks and asks and never reads is put out before what waits for it grows
// without bound; one that reads what it asked for is not, however much that is over time.
func TestRouterPutsOutWhoDoesNotRead(t *testing.T) {
	const most = 5_000
	router, endpoint := newBoundRouter(t, RouterOptions{MaxOwed: most})
	payload := make([]byte, 2<<10)
	_, stopped := rawPeer(t, endpoint, zmq4.Dealer)
	if err := stopped.SendMsg(zmq4.NewMsgString("ask")); err != nil {
		t.Fatal(err)
	}
	q, err := router.Recv(within(t))
	if err != nil {
		t.Fatal(err)
	}
	// What the sockets' own buffers take is not waiting: 100 MB are more than they have.
	for n := 0; err == nil; n++ {
		if n == 10*most {
			t.Fatalf("%d replies wait for a peer that reads nothing", n)
		}
		err = q.Reply(payload)
	}
	if !errors.Is(err, ErrPeerGone) {
		t.Fatal(err)
	}
	answerAll(t, router, most/2, payload)
	healthy := newDealer(t, endpoint)
	for range 10 {
		if err := healthy.Send([]byte("ask")); err != nil {
			t.Fatal(err)
		}
		for range most/2 + 1 {
			if _, err := healthy.Recv(within(t)); err != nil {
				t.Fatal(err)
			}
		}
	}
}
