package zsock

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"
	"pgregory.net/rapid"
)

func TestParseEndpoint(t *testing.T) {
	tests := []struct {
		endpoint, network, address string
		bindOnly                   bool
	}{
		{"tcp://127.0.0.1:5557", "tcp", "127.0.0.1:5557", false},
		{"tcp://localhost:5557", "tcp", "localhost:5557", false},
		{"tcp://[::1]:5557", "tcp", "[::1]:5557", false},
		{"tcp://*:5557", "tcp", "127.0.0.1:5557", true}, // not every interface
		{"tcp://*:*", "tcp", "127.0.0.1:0", true},
		{"tcp://127.0.0.1:0", "tcp", "127.0.0.1:0", true},
		{"tcp://0.0.0.0:5557", "tcp", "0.0.0.0:5557", false},
		{"ipc:///run/x.sock", "unix", "/run/x.sock", false},
		{"ipc://@abstract", "unix", "@abstract", false},
	}
	for _, tt := range tests {
		network, address, err := parseEndpoint(tt.endpoint, true)
		if network != tt.network || address != tt.address || err != nil {
			t.Errorf("bind %s: %s %s, %v", tt.endpoint, network, address, err)
		}
		if _, _, err := parseEndpoint(tt.endpoint, false); (err != nil) != tt.bindOnly {
			t.Errorf("dial %s: %v", tt.endpoint, err)
		}
	}
	for _, bad := range []string{"", "tcp", "tcp://", "ipc://", "tcp://127.0.0.1", "inproc://x", "127.0.0.1:5557"} {
		if _, _, err := parseEndpoint(bad, true); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

// A file that is no socket is not unlinked by a bind.
func TestBindKeepsFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(path, []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	pub := closing(t, NewPub(PubOptions{}))
	if _, err := pub.Bind("ipc://" + path); err == nil {
		t.Error("bound over a file")
	}
	if b, err := os.ReadFile(path); string(b) != "data" {
		t.Errorf("the file is now %q, %v", b, err)
	}
}

func TestBackoff(t *testing.T) {
	b := backoff{min: 10, max: 100}
	var got []time.Duration
	for range 6 {
		got = append(got, b.next())
	}
	b.lived(100) // a connection no longer than the longest delay changes nothing
	got = append(got, b.next())
	b.lived(101)
	got = append(got, b.next())
	if want := []time.Duration{10, 20, 40, 80, 100, 100, 100, 10}; !slices.Equal(got, want) {
		t.Errorf("delays %v, want %v", got, want)
	}
}

// A filter is a set of prefixes, and the ones before it stay as they were.
func TestFilterAgainstSet(t *testing.T) {
	topic := rapid.StringMatching(`[ab]{0,3}`)
	rapid.Check(t, func(t *rapid.T) {
		f, set := &filter{}, map[string]bool{}
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			old, was := f, len(f.topics)
			name := topic.Draw(t, "topic")
			set[name] = rapid.Bool().Draw(t, "subscribe")
			in := subscriptionOf(name, set[name])
			next, err := f.apply(in)
			if err != nil {
				t.Fatal(err)
			}
			f = next
			if len(old.topics) != was {
				t.Fatal("a filter was changed in place")
			}
			frame := topic.Draw(t, "frame")
			want := false
			for prefix, in := range set {
				want = want || in && strings.HasPrefix(frame, prefix)
			}
			if got := f.match([]byte(frame)); got != want {
				t.Fatalf("%q against %q: %v", frame, f.topics, got)
			}
		}
	})
}

func subscriptionOf(topic string, subscribe bool) incoming {
	if subscribe {
		return incoming{frames: subscription(topic)}
	}
	return incoming{frames: [][]byte{append([]byte{0}, topic...)}}
}

// A message leaves in one write, however many frames it has, and a burst in far fewer writes than messages.
func TestFewWrites(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	nc := rawDial(t, ln.Addr().String())
	accepted, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	counted := &countingConn{Conn: nc}
	opened := make(chan *link)
	go func() {
		l, err := openLink(counted, linkOptions{kind: zmq4.Pub})
		if err != nil {
			t.Error(err)
		}
		opened <- l
	}()
	peer := rawOpen(t, accepted, zmq4.Sub, true)
	l := <-opened
	handshake := counted.writes.Load()

	l.out.push(numbered("topic", 0, make([]byte, 2<<10)))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = l.run(0, func(incoming) error { return nil })
	}()
	read := func(n int) {
		for range n {
			if m, err := peer.RecvMsg(); err != nil || len(m.Frames) != 3 || !bytes.Equal(m.Frames[0], []byte("topic")) {
				t.Fatalf("received %v, %v", m, err)
			}
		}
	}
	read(1)
	if n := counted.writes.Load() - handshake; n != 1 {
		t.Errorf("a message of three frames left in %d writes", n)
	}
	const burst = 1000
	l.out.mu.Lock() // so that the writer finds the whole burst
	for range burst {
		l.out.queue = append(l.out.queue, numbered("topic", 0, make([]byte, 2<<10)))
	}
	l.out.rouse()
	l.out.mu.Unlock()
	read(burst)
	if n := counted.writes.Load() - handshake - 1; n > burst*(2<<10+32)/bufferSize+1 {
		t.Errorf("%d messages of 2 KB left in %d writes", burst, n)
	}
	_ = accepted.Close()
	<-ended
}

type countingConn struct {
	net.Conn
	writes atomic.Int64
}

func (c *countingConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}
