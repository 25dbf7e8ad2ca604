package zsock

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// fuzzMax is a small limit, so that a fuzzer reaches it.
const fuzzMax = 600

// cutReference cuts a whole byte string into messages and commands in the plainest way there is: it stops
// at the first thing that is torn, forbidden or over a limit.
func cutReference(b []byte) (all []incoming) {
	var parts [][]byte
	total := uint64(0)
	for len(b) >= 2 {
		flags, size, head := b[0], uint64(b[1]), 2
		if flags&flagLong != 0 {
			if len(b) < 9 {
				return all
			}
			size, head = binary.BigEndian.Uint64(b[1:9]), 9
		}
		isCommand := flags&flagCommand != 0
		limit := uint64(fuzzMax) - total
		if isCommand {
			limit = maxCommand
		}
		if flags > 7 || isCommand && flags&flagMore != 0 || size > limit || uint64(len(b)-head) < size {
			return all
		}
		body := b[head : head+int(size)]
		b = b[head+int(size):]
		if isCommand {
			if size < 2 || body[0] == 0 || int(body[0]) >= len(body) {
				return all
			}
			n := 1 + int(body[0])
			all = append(all, incoming{command: string(body[1:n]), body: body[n:]})
			continue
		}
		if len(parts) == maxParts {
			return all
		}
		parts = append(parts, body)
		total += size
		if flags&flagMore == 0 {
			all = append(all, incoming{frames: parts})
			parts, total = nil, 0
		}
	}
	return all
}

func cut(b []byte) (all []incoming, err error) {
	f := frameReader{r: bufio.NewReaderSize(bytes.NewReader(b), 16), max: fuzzMax}
	for {
		in, err := f.next()
		if err != nil {
			return all, err
		}
		all = append(all, in)
	}
}

func checkCut(t rapid.TB, b []byte) {
	got, err := cut(b)
	want := cutReference(b)
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(incoming{})); diff != "" {
		t.Fatalf("of %x, ended by %v (-reference +got):\n%s", b, err, diff)
	}
	if err == io.EOF && len(encode(got)) > len(b) {
		t.Fatalf("a clean end inside a frame of %x", b)
	}
}

// encode is the canonical form: the shortest header that fits.
func encode(all []incoming) (b []byte) {
	frame := func(flags byte, body []byte) {
		if len(body) > 255 {
			b = append(b, longFrame(flags, uint64(len(body)))...)
		} else {
			b = append(b, flags, byte(len(body)))
		}
		b = append(b, body...)
	}
	for _, in := range all {
		if in.command != "" {
			frame(flagCommand, append([]byte{byte(len(in.command))}, in.command+string(in.body)...))
		}
		for i, f := range in.frames {
			more := byte(flagMore)
			if i == len(in.frames)-1 {
				more = 0
			}
			frame(more, f)
		}
	}
	return b
}

// What the plain reader makes of any bytes, ours makes of them through buffers of any size.
func FuzzFrameReader(f *testing.F) {
	f.Add(encode([]incoming{{frames: [][]byte{[]byte("topic"), make([]byte, 8), make([]byte, 300)}}, {command: "PING", body: []byte{0, 0}}}))
	f.Add([]byte("\x01\x01a\x04\x07\x04PING\x00\x00\x00\x01b")) // a command between two frames
	f.Add(longFrame(0, 1<<62))
	f.Add(longFrame(flagMore, 3))
	f.Add([]byte{flagCommand, 0})
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) { checkCut(t, b) })
}

// The same for streams that are mostly right, and then cut or changed in one byte.
func TestFrameReaderAgainstReference(t *testing.T) {
	bytesOf := func(maxLen int) *rapid.Generator[[]byte] { return rapid.SliceOfN(rapid.Byte(), 0, maxLen) }
	message := rapid.Custom(func(t *rapid.T) incoming {
		return incoming{frames: rapid.SliceOfN(bytesOf(280), 1, 4).Draw(t, "frames")}
	})
	cmd := rapid.Custom(func(t *rapid.T) incoming {
		return incoming{
			command: rapid.SampledFrom([]string{"PING", "PONG", "SUBSCRIBE", "CANCEL", "x"}).Draw(t, "name"),
			body:    bytesOf(300).Draw(t, "body"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		b := encode(rapid.SliceOfN(rapid.OneOf(message, cmd), 1, 6).Draw(t, "stream"))
		switch rapid.SampledFrom([]string{"whole", "cut", "changed"}).Draw(t, "damage") {
		case "cut":
			b = b[:rapid.IntRange(0, len(b)).Draw(t, "at")]
		case "changed":
			b[rapid.IntRange(0, len(b)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "to")
		}
		checkCut(t, b)
	})
}

// The end of the stream is a clean one only between messages.
func TestFrameReaderEnd(t *testing.T) {
	whole := encode([]incoming{{frames: [][]byte{[]byte("ab"), make([]byte, 300)}}})
	for n := range len(whole) + 1 {
		want := io.ErrUnexpectedEOF
		if n == 0 || n == len(whole) {
			want = io.EOF
		}
		if _, err := cut(whole[:n]); err != want {
			t.Errorf("%d of %d bytes: %v, want %v", n, len(whole), err, want)
		}
	}
}

// No bytes before or in place of a handshake panic, hang or allocate by their own word.
func FuzzHandshake(f *testing.F) {
	f.Add(append(greeting(), "\x04\x1a\x05READY\x0bSocket-Type\x00\x00\x00\x03SUB"...))
	f.Add(append(greeting(), "\x04\x11\x05READY\x0bSocket-Type"...))
	f.Add(append(greeting(), longFrame(flagCommand, 1<<40)...))
	f.Add([]byte("GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: a probe longer than a greeting\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := openLink(&stringConn{Reader: bytes.NewReader(b)}, linkOptions{kind: zmq4.Pub, server: true})
		if err == nil && l.conn.Peer.Meta["Socket-Type"] != "SUB" && l.conn.Peer.Meta["Socket-Type"] != "XSUB" {
			t.Errorf("a %q was taken for a subscriber", l.conn.Peer.Meta["Socket-Type"])
		}
	})
}

// stringConn is a connection that reads from a string and writes to nowhere.
type stringConn struct {
	net.Conn
	io.Reader
}

func (c *stringConn) Read(p []byte) (int, error)  { return c.Reader.Read(p) }
func (c *stringConn) Write(p []byte) (int, error) { return len(p), nil }
func (c *stringConn) Close() error                { return nil }
func (c *stringConn) SetDeadline(time.Time) error { return nil }
func (c *stringConn) RemoteAddr() net.Addr        { return &net.UnixAddr{Name: "fuzz", Net: "unix"} }
