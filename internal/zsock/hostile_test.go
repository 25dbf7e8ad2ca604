package zsock

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/go-zeromq/zmq4"
)

// longFrame is the header of a frame that claims to be size bytes long.
func longFrame(flags byte, size uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{flags | flagLong}, size)
}

// proveAlive checks that a publisher still takes a new subscriber and serves it.
func proveAlive(t *testing.T, pub *Pub, endpoint string) {
	t.Helper()
	sub := newSub(t, endpoint, SubOptions{})
	sub.next(t, SubUp)
	pub.Send([]byte("alive"))
	if e := sub.next(t, SubMessage); string(e.Frames[0]) != "alive" {
		t.Errorf("received %q", e.Frames)
	}
}

// Peers that connect and say nothing, or not enough, keep nobody out and are closed after the handshake's
// three seconds.
func TestSilentPeer(t *testing.T) {
	t.Parallel()
	pub, endpoint := newBoundPub(t, PubOptions{})
	peers := []net.Conn{rawDial(t, endpoint), rawDial(t, endpoint), rawDial(t, endpoint)}
	if _, err := peers[1].Write(greeting()[:10]); err != nil {
		t.Fatal(err)
	}
	if _, err := peers[2].Write(greeting()); err != nil {
		t.Fatal(err)
	}
	proveAlive(t, pub, endpoint)
	for _, nc := range peers {
		expectClosed(t, nc)
	}
	proveAlive(t, pub, endpoint)
}

// Everything a stranger can say before it is a subscriber ends its own connection only.
func TestHostileHandshake(t *testing.T) {
	ready := func(body string) []byte {
		frame := "\x05READY" + body
		return append([]byte{flagCommand, byte(len(frame))}, frame...)
	}
	tests := map[string][]byte{
		"http probe":            []byte("GET /health HTTP/1.1\r\nHost: x\r\nUser-Agent: probe/1.0\r\nAccept: */*\r\n\r\n"),
		"port scanner":          []byte("\r\n\r\n"),
		"giant frame 2^62":      append(greeting(), longFrame(flagCommand, 1<<62)...),
		"giant frame 2^63":      append(greeting(), longFrame(flagCommand, 1<<63)...),
		"giant frame 1 TB":      append(greeting(), longFrame(flagCommand, 1<<40)...),
		"message for a command": append(greeting(), longFrame(0, 8)...),
		"more after READY":      append(greeting(), longFrame(flagCommand|flagMore, 8)...),
		"torn property name":    append(greeting(), ready("\x0bSocket")...),
		"torn property value":   append(greeting(), ready("\x0bSocket-Type\x00\x00")...),
		"long property value":   append(greeting(), ready("\x0bSocket-Type\xff\xff\xff\xffSUB")...),
		"unknown socket type":   append(greeting(), ready("\x0bSocket-Type\x00\x00\x00\x03XYZ")...),
		"wrong socket type":     append(greeting(), ready("\x0bSocket-Type\x00\x00\x00\x03PUB")...),
		"no socket type":        append(greeting(), ready("")...),
		"empty command":         append(greeting(), flagCommand, 0),
	}
	pub, endpoint := newBoundPub(t, PubOptions{})
	for name, bytes := range tests {
		t.Run(name, func(t *testing.T) {
			nc := rawDial(t, endpoint)
			if _, err := nc.Write(bytes); err != nil {
				t.Fatal(err)
			}
			if err := nc.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			expectClosed(t, nc)
		})
	}
	proveAlive(t, pub, endpoint)
}

// So does everything a subscriber can say once it is one.
func TestHostileSubscriber(t *testing.T) {
	topics := func() []byte {
		var b []byte
		for i := range maxTopics + 1 {
			b = append(b, 0, 3, 1, byte(i>>8), byte(i))
		}
		return b
	}
	tests := map[string][]byte{
		"giant frame 2^62":       longFrame(0, 1<<62),
		"giant frame 2^64-1":     longFrame(0, 1<<64-1),
		"frame over the limit":   longFrame(0, maxFromSubscriber+1),
		"giant command":          longFrame(flagCommand, maxCommand+1),
		"frames over the limit":  bytes.Repeat([]byte{flagMore, 0}, maxParts+1),
		"message over the limit": append(append(longFrame(flagMore, maxFromSubscriber), make([]byte, maxFromSubscriber)...), 0, 1),
		"reserved flags":         {0x80, 0},
		"command with more":      {flagCommand | flagMore, 0},
		"command without a name": {flagCommand, 0},
		"torn command name":      {flagCommand, 3, 9, 'P', 'I'},
		"torn PING":              append([]byte{flagCommand, 5, 4}, "PING"...),
		"too many topics":        topics(),
	}
	pub, endpoint := newBoundPub(t, PubOptions{})
	for name, bytes := range tests {
		t.Run(name, func(t *testing.T) {
			nc, _ := rawPeer(t, endpoint, zmq4.Sub)
			if _, err := nc.Write(bytes); err != nil {
				t.Fatal(err)
			}
			expectClosed(t, nc)
		})
	}
	eventually(t, "every hostile peer is gone", func() bool { return pub.Stats().Peers == 0 })
	proveAlive(t, pub, endpoint)
}

// A subscriber that floods PINGs and reads no answer costs a bounded number of PONGs.
func TestPingFlood(t *testing.T) {
	o := newOutbox(0)
	for range 10 * maxPendingCommands {
		o.command(zmq4.CmdPong, nil)
	}
	if _, commands := o.take(nil); len(commands) != maxPendingCommands {
		t.Errorf("%d PONGs are owed, want %d", len(commands), maxPendingCommands)
	}
}

// A publisher that sends a message over the subscriber's limit is left, with the reason in the event.
func TestGiantMessageFromPublisher(t *testing.T) {
	endpoint := fakePeer(t, zmq4.Pub, func(nc net.Conn, _ *zmq4.Conn) {
		_, _ = nc.Write(append([]byte{0, 2, 'h', 'i'}, longFrame(0, 1<<62)...))
		_, _ = io.Copy(io.Discard, nc)
	})
	sub := newSub(t, endpoint, SubOptions{})
	sub.next(t, SubUp)
	sub.next(t, SubMessage)
	if e := sub.next(t, SubDown); !strings.Contains(e.Err.Error(), errTooLarge.Error()) {
		t.Errorf("down because of %v", e.Err)
	}
}
