package zsock

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/google/go-cmp/cmp"
)

// numbered is a message as a vLLM publisher sends it: topic, sequence number, payload.
func numbered(topic string, seq uint64, payload []byte) [][]byte {
	return [][]byte{[]byte(topic), binary.BigEndian.AppendUint64(nil, seq), payload}
}

func seqOf(frames [][]byte) uint64 { return binary.BigEndian.Uint64(frames[1]) }

// A subscriber that is up misses nothing that is sent from then on, and only its topic arrives.
func TestPubSub(t *testing.T) {
	pub, endpoint := newBoundPub(t, PubOptions{})
	if !strings.HasPrefix(endpoint, "tcp://127.0.0.1:") {
		t.Errorf("tcp://*:* was bound as %s", endpoint)
	}
	sub := newSub(t, endpoint, SubOptions{Topic: "kv@1"})
	sub.next(t, SubUp)
	const n = 2000
	for i := range uint64(n) {
		pub.Send(numbered("kv@2", i, nil)...)
		pub.Send(numbered("kv@1@model", i, []byte("payload"))...)
	}
	for i := range uint64(n) {
		e := sub.next(t, SubMessage)
		if diff := cmp.Diff(numbered("kv@1@model", i, []byte("payload")), e.Frames); diff != "" {
			t.Fatalf("message %d (-want +got):\n%s", i, diff)
		}
		if e.MonoNs == 0 {
			t.Fatal("a message without a time")
		}
	}
	want := PubStats{Peers: 1, Sent: n}
	if diff := cmp.Diff(want, pub.Stats()); diff != "" {
		t.Errorf("stats (-want +got):\n%s", diff)
	}
}

// SubUp means what it says from the first message on, whichever way the race between subscribing and
// sending would otherwise have gone: here a publisher that never stops sending meets new subscribers.
func TestUpIsProven(t *testing.T) {
	pub, endpoint := newBoundPub(t, PubOptions{})
	for i := range uint64(100) {
		sub := newSub(t, endpoint, SubOptions{})
		sub.next(t, SubUp)
		pub.Send(numbered("", i, nil)...)
		if e := sub.next(t, SubMessage); seqOf(e.Frames) != i {
			t.Fatalf("subscriber %d received message %d first", i, seqOf(e.Frames))
		}
		_ = sub.Close()
	}
}

// Frames of every length class arrive whole: empty, short, long, longer than the buffers and than what a
// reader allocates on trust.
func TestFrameSizes(t *testing.T) {
	pub, endpoint := newBoundPub(t, PubOptions{})
	sub := newSub(t, endpoint, SubOptions{})
	sub.next(t, SubUp)
	for _, n := range []int{0, 1, 255, 256, bufferSize - 1, bufferSize + 1, firstRead, firstRead + 1, 3*firstRead + 7, 5 << 20} {
		frame := bytes.Repeat([]byte("0123456789abcdef!"), n/17+1)[:n]
		pub.Send([]byte{}, frame, []byte("end"))
		e := sub.next(t, SubMessage)
		if len(e.Frames) != 3 || len(e.Frames[0]) != 0 || !bytes.Equal(e.Frames[1], frame) || string(e.Frames[2]) != "end" {
			t.Errorf("a frame of %d bytes came as %d frames, the second of %d bytes", n, len(e.Frames), len(e.Frames[1]))
		}
	}
}

// Both ways to subscribe and to unsubscribe are understood: the message of ZMTP 3.0 and the command of 3.1.
func TestSubscriptionForms(t *testing.T) {
	pub, endpoint := newBoundPub(t, PubOptions{})
	_, conn := rawPeer(t, endpoint, zmq4.Sub)
	steps := []struct {
		do   func() error
		want string // the topics of a, b and c that arrive afterwards
	}{
		{func() error { return conn.SendMsg(zmq4.NewMsgString("\x01a")) }, "a"},
		{func() error { return conn.SendCmd(zmq4.CmdSubscribe, []byte("b")) }, "ab"},
		{func() error { return conn.SendMsg(zmq4.NewMsgString("\x01a")) }, "ab"}, // twice is once
		{func() error { return conn.SendMsg(zmq4.NewMsgString("\x00a")) }, "b"},
		{func() error { return conn.SendCmd(zmq4.CmdCancel, []byte("b")) }, ""},
		{func() error { return conn.SendMsg(zmq4.NewMsgString("\x01")) }, "abc"},
		{func() error { return conn.SendMsg(zmq4.NewMsgString("\x02?")) }, "abc"}, // no subscription
	}
	for i, step := range steps {
		if err := errors.Join(step.do(), conn.SendCmd(zmq4.CmdPing, []byte{0, 0})); err != nil {
			t.Fatal(err)
		}
		if cmd, err := conn.RecvCmd(); err != nil || cmd.Name != zmq4.CmdPong {
			t.Fatalf("step %d: %q, %v", i, cmd.Name, err)
		}
		before := pub.Stats().Sent
		for _, topic := range []string{"a", "b", "c"} {
			pub.Send([]byte(topic))
		}
		var got string
		for range pub.Stats().Sent - before {
			m, err := conn.RecvMsg()
			if err != nil {
				t.Fatal(err)
			}
			got += string(m.Frames[0])
		}
		if got != step.want {
			t.Errorf("step %d: received %q, want %q", i, got, step.want)
		}
	}
}

// Without a high-water mark a subscriber that stops reading loses nothing.
func TestUnlimited(t *testing.T) {
	pub, endpoint := newBoundPub(t, PubOptions{HWM: Unlimited})
	stopped := rawSubscriber(t, pub, endpoint)
	const n = 2 * defaultPubHWM
	payload := make([]byte, 64) // 17 MB in all: more than sockets hold
	for i := range uint64(n) {
		pub.Send(numbered("", i, payload)...)
	}
	if s := pub.Stats(); s.Dropped != 0 {
		t.Fatalf("%+v", s)
	}
	for i := range uint64(n) {
		if m, err := stopped.RecvMsg(); err != nil || seqOf(m.Frames) != i {
			t.Fatalf("message %d: %v, %v", i, m, err)
		}
	}
}

// A subscriber that stops reading loses messages and nobody else does: not a healthy one, not a late one.
func TestStoppedSubscriber(t *testing.T) {
	const hwm = 1000
	pub, endpoint := newBoundPub(t, PubOptions{HWM: hwm})
	stopped := rawSubscriber(t, pub, endpoint)
	healthy := newSub(t, endpoint, SubOptions{})
	healthy.next(t, SubUp)

	payload := make([]byte, 2<<10)
	sent := uint64(0)
	for ; pub.Stats().Dropped < 5*hwm; sent++ {
		pub.Send(numbered("", sent, payload)...)
		if e := healthy.next(t, SubMessage); seqOf(e.Frames) != sent {
			t.Fatalf("the healthy subscriber received %d, want %d", seqOf(e.Frames), sent)
		}
	}
	proveAlive(t, pub, endpoint) // sends one message more, to all three

	// When the stopped one reads again, it finds what was queued, in order and with gaps, and the counters
	// agree with what it finds.
	stats := pub.Stats()
	if stats.Sent+stats.Dropped != 2*sent+3 {
		t.Errorf("%d sent and %d dropped of %d", stats.Sent, stats.Dropped, 2*sent+3)
	}
	received, last := sent+1-stats.Dropped, uint64(0)
	for i := range received {
		m, err := stopped.RecvMsg()
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Frames) == 1 { // proveAlive's
			continue
		}
		seq := seqOf(m.Frames)
		if i > 0 && seq <= last {
			t.Fatalf("received %d after %d", seq, last)
		}
		last = seq
	}
	eventually(t, "the stopped subscriber receives what is sent now", func() bool {
		before := pub.Stats().Dropped
		pub.Send(numbered("", 1<<40, nil)...)
		return pub.Stats().Dropped == before
	})
	if m, err := stopped.RecvMsg(); err != nil || seqOf(m.Frames) != 1<<40 {
		t.Errorf("received %v, %v", m, err)
	}
}

// With a write timeout, a subscriber that does not read is closed instead.
func TestKick(t *testing.T) {
	pub, endpoint := newBoundPub(t, PubOptions{WriteTimeout: time.Second})
	rawSubscriber(t, pub, endpoint)
	payload := make([]byte, 1<<20)
	eventually(t, "the subscriber is kicked", func() bool {
		pub.Send(payload)
		s := pub.Stats()
		return s.Kicked == 1 && s.Peers == 0
	})
	proveAlive(t, pub, endpoint)
}

// Subscribers that come and go leave nothing behind.
func TestChurn(t *testing.T) {
	pub, endpoint := newBoundPub(t, PubOptions{})
	var senders sync.WaitGroup
	stop := make(chan struct{})
	senders.Go(func() {
		for i := uint64(0); ; i++ {
			select {
			case <-stop:
				return
			default:
				pub.Send(numbered("", i, nil)...)
			}
		}
	})
	for i := range 300 {
		if i%2 == 0 { // gone without a word
			nc, _ := rawPeer(t, endpoint, zmq4.Sub)
			_ = nc.(*net.TCPConn).SetLinger(0)
			_ = nc.Close()
			continue
		}
		sub := newSub(t, endpoint, SubOptions{})
		sub.next(t, SubUp)
		_ = sub.Close()
	}
	close(stop)
	senders.Wait()
	eventually(t, "no peers are left", func() bool { return pub.Stats().Peers == 0 })
	proveAlive(t, pub, endpoint)
}

// In dial mode the publisher finds a subscriber that binds, and finds it again.
func TestPubConnects(t *testing.T) {
	pub := closing(t, NewPub(PubOptions{}))
	received := make(chan string)
	done := make(chan struct{})
	t.Cleanup(func() { close(done) })
	endpoint := fakePeer(t, zmq4.Sub, func(nc net.Conn, conn *zmq4.Conn) {
		if conn.SendMsg(zmq4.NewMsg([]byte{1})) != nil {
			return
		}
		if m, err := conn.RecvMsg(); err == nil { // one message, then the connection is lost
			select {
			case received <- string(m.Frames[0]):
			case <-done:
			}
		}
	})
	if err := pub.Connect(endpoint); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		eventually(t, "a message gets through", func() bool {
			pub.Send([]byte("hello"))
			select {
			case m := <-received:
				return m == "hello"
			default:
				return false
			}
		})
	}
}

// A publisher's restart on the same port is down, up and messages again, on a subscriber that never dialled
// anew by itself. On ipc the file of a killed publisher is no obstacle.
func TestRestart(t *testing.T) {
	for _, endpoint := range []string{"tcp://127.0.0.1:0", "ipc://" + filepath.Join(t.TempDir(), "pub.sock")} {
		first := closing(t, NewPub(PubOptions{}))
		bound, err := first.Bind(endpoint)
		if err != nil {
			t.Fatal(err)
		}
		sub := newSub(t, bound, SubOptions{Topic: "t"})
		sub.next(t, SubUp)
		_ = first.Close()
		if e := sub.next(t, SubDown); e.Err == nil {
			t.Error("down without a reason")
		}
		leaveStale(t, endpoint)
		second := closing(t, NewPub(PubOptions{}))
		if _, err := second.Bind(bound); err != nil {
			t.Fatal(err)
		}
		sub.Redial()
		sub.next(t, SubUp)
		second.Send([]byte("topic"))
		sub.next(t, SubMessage)
	}
}

// leaveStale leaves the socket file of an ipc endpoint behind, with nobody listening.
func leaveStale(t *testing.T, endpoint string) {
	path, ok := strings.CutPrefix(endpoint, "ipc://")
	if !ok {
		return
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ln.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = ln.Close()
	if _, err := os.Lstat(path); err != nil {
		t.Fatal(err)
	}
}

// Calls on a closed socket say so.
func TestClosed(t *testing.T) {
	pub, endpoint := newBoundPub(t, PubOptions{})
	sub := newSub(t, endpoint, SubOptions{})
	router := closing(t, NewRouter(RouterOptions{}))
	_, _, _ = pub.Close(), sub.Close(), router.Close()
	pub.Send([]byte("nobody hears"))
	sub.Redial()
	_, bindErr := pub.Bind("tcp://*:*")
	_, routerErr := router.Recv(within(t))
	for what, err := range map[string]error{
		"Bind": bindErr, "Connect": pub.Connect(endpoint), "Router.Recv": routerErr, "Sub.Recv": drainClosed(t, sub),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s after Close: %v", what, err)
		}
	}
}

// drainClosed reads what was queued before the Close and returns the error behind it.
func drainClosed(t *testing.T, sub *Sub) error {
	for {
		if _, err := sub.Recv(within(t)); err != nil {
			return err
		}
	}
}
