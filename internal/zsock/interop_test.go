package zsock

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The tests of this file hold the sockets against libzmq, by way of pyzmq in a process of its own.

// python is the interpreter of the system, whose package python3-zmq is the pyzmq meant here.
const python = "/usr/bin/python3"

// libzmq is one socket of libzmq. See testdata/peer.py.
type libzmq struct {
	endpoint string
	in       *json.Encoder
	out      *json.Decoder
}

func newLibzmq(t *testing.T, args ...string) *libzmq {
	t.Helper()
	if out, err := exec.Command(python, "-c", "import zmq").CombinedOutput(); err != nil {
		if os.Getenv("FLEETDRILL_REQUIRE_SHARED") == "1" {
			t.Fatalf("no pyzmq and FLEETDRILL_REQUIRE_SHARED=1: %v\n%s", err, out)
		}
		t.Skipf("no pyzmq (package python3-zmq) for %s: %v", python, err)
	}
	cmd := exec.CommandContext(t.Context(), python, append([]string{"testdata/peer.py"}, args...)...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_, _ = io.Copy(io.Discard, stdout)
		_ = cmd.Wait()
	})
	z := &libzmq{in: json.NewEncoder(stdin), out: json.NewDecoder(bufio.NewReader(stdout))}
	var hello struct{ Endpoint string }
	z.read(t, &hello)
	z.endpoint = hello.Endpoint
	return z
}

func (z *libzmq) read(t *testing.T, answer any) {
	t.Helper()
	if err := z.out.Decode(answer); err != nil {
		t.Fatalf("the libzmq peer: %v", err)
	}
}

func (z *libzmq) do(t *testing.T, command map[string]any) {
	t.Helper()
	if err := z.in.Encode(command); err != nil {
		t.Fatalf("the libzmq peer: %v", err)
	}
}

func (z *libzmq) send(t *testing.T, times int, frames ...[]byte) {
	t.Helper()
	var text []string
	for _, f := range frames {
		text = append(text, hex.EncodeToString(f))
	}
	z.do(t, map[string]any{"send": text, "times": times})
}

func (z *libzmq) recv(t *testing.T) [][]byte {
	t.Helper()
	z.ask(t)
	return z.received(t)
}

// ask begins a recv, in which libzmq also takes notice of new connections; received ends it.
func (z *libzmq) ask(t *testing.T) {
	t.Helper()
	z.do(t, map[string]any{"recv": 1})
}

func (z *libzmq) received(t *testing.T) [][]byte {
	t.Helper()
	var answer struct{ Frames []string }
	z.read(t, &answer)
	frames := make([][]byte, len(answer.Frames))
	for i, f := range answer.Frames {
		frames[i], _ = hex.DecodeString(f)
	}
	return frames
}

func (z *libzmq) disconnects(t *testing.T) int {
	t.Helper()
	z.do(t, map[string]any{"disconnects": true})
	var answer struct{ Disconnects int }
	z.read(t, &answer)
	return answer.Disconnects
}

func wantFrames(t *testing.T, want, got [][]byte) {
	t.Helper()
	if slices.EqualFunc(want, got, bytes.Equal) { // cmp takes its time over large frames
		return
	}
	t.Fatalf("frames (-want +got):\n%s", cmp.Diff(want, got))
}

// endpoints is one endpoint of each transport.
func endpoints(t *testing.T) []string {
	return []string{"tcp://127.0.0.1:*", "ipc://" + filepath.Join(t.TempDir(), "zmq.sock")}
}

// A libzmq subscriber receives what a Pub sends, whole and in order, its topic only.
func TestPubToLibzmq(t *testing.T) {
	for _, endpoint := range endpoints(t) {
		pub := closing(t, NewPub(PubOptions{}))
		bound, err := pub.Bind(endpoint)
		if err != nil {
			t.Fatal(err)
		}
		z := newLibzmq(t, "SUB", "connect", bound, "SUBSCRIBE=kv")
		eventually(t, "libzmq has subscribed", func() bool {
			pub.Send([]byte("kv"))
			return pub.Stats().Sent > 0
		})
		wantFrames(t, [][]byte{[]byte("kv")}, z.recv(t))
		for i := range uint64(300) {
			pub.Send(numbered("other", i, nil)...)
			pub.Send(numbered("kv-events", i, make([]byte, 10*i))...)
		}
		for i := range uint64(300) {
			wantFrames(t, numbered("kv-events", i, make([]byte, 10*i)), z.recv(t))
		}
	}
}

// A Pub that connects reaches a libzmq subscriber that binds.
func TestPubConnectsToLibzmq(t *testing.T) {
	z := newLibzmq(t, "SUB", "bind", "tcp://127.0.0.1:*", "SUBSCRIBE=")
	pub := closing(t, NewPub(PubOptions{}))
	if err := pub.Connect(z.endpoint); err != nil {
		t.Fatal(err)
	}
	z.ask(t)
	eventually(t, "libzmq has subscribed", func() bool {
		pub.Send([]byte("hello"))
		return pub.Stats().Sent > 0
	})
	wantFrames(t, [][]byte{[]byte("hello")}, z.received(t))
}

// A Sub receives what libzmq sends, and stays up on a libzmq publisher that has nothing to say.
func TestSubFromLibzmq(t *testing.T) {
	t.Parallel()
	for _, endpoint := range endpoints(t) {
		z := newLibzmq(t, "PUB", "bind", endpoint)
		sub := newSub(t, z.endpoint, SubOptions{Topic: "kv"})
		sub.next(t, SubUp)
		// libzmq answers a PING on another thread than the one that takes a subscription in: that is the
		// sender's, at its next send. So the answer may be ahead of it.
		for first := false; !first; {
			z.send(t, 1, []byte("kv"))
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			_, err := sub.expect(ctx, SubMessage)
			cancel()
			if first = err == nil; !first && !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
		}
		message := numbered("kv-events", 7, make([]byte, 70_000))
		z.send(t, 500, message...)
		for n := 0; n < 500; {
			e := sub.next(t, SubMessage)
			if len(e.Frames) == 1 { // one more of the first
				continue
			}
			wantFrames(t, message, e.Frames)
			n++
		}
		atSomeBeat(t, func(beat time.Duration) error {
			idle := newSub(t, z.endpoint, SubOptions{Heartbeat: beat})
			if _, err := idle.expect(within(t), SubUp); err != nil {
				return err
			}
			return idle.idle(t, 2*missesProven*beat)
		})
	}
}

// hears sends a message until libzmq has received it: what is sent while it has no connection is lost.
func (z *libzmq) hears(t *testing.T, pub *Pub, text string) {
	t.Helper()
	heard := make(chan struct{})
	var sender sync.WaitGroup
	sender.Go(func() {
		for {
			pub.Send([]byte(text))
			select {
			case <-heard:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
	defer sender.Wait()
	defer close(heard)
	for string(z.recv(t)[0]) != text {
	}
}

// A libzmq subscriber that sends heartbeats finds them answered: on an idle topic it loses no connection.
func TestLibzmqHeartbeats(t *testing.T) {
	t.Parallel()
	pub, endpoint := newBoundPub(t, PubOptions{})
	atSomeBeat(t, func(beat time.Duration) error {
		ms := func(option string, d time.Duration) string { return fmt.Sprintf("%s=%d", option, d.Milliseconds()) }
		z := newLibzmq(t, "SUB", "connect", endpoint, "SUBSCRIBE=",
			ms("HEARTBEAT_IVL", beat), ms("HEARTBEAT_TIMEOUT", 2*beat), ms("HEARTBEAT_TTL", 2*beat))
		z.hears(t, pub, "hello")
		<-time.After(10 * beat) // ten heartbeats, five times the timeout
		z.hears(t, pub, "still here")
		if n := z.disconnects(t); n != 0 {
			return fmt.Errorf("libzmq disconnected %d times", n)
		}
		return nil
	})
}

// libzmq's DEALER and REQ ask a Router; a REQ is answered once for each request.
func TestRouterToLibzmq(t *testing.T) {
	router, endpoint := newBoundRouter(t, RouterOptions{})
	answerAll(t, router, 50, []byte("payload"))
	dealer := newLibzmq(t, "DEALER", "connect", endpoint)
	dealer.send(t, 1, []byte{}, []byte("12345678"))
	for range 50 {
		if m := dealer.recv(t); len(m) != 3 || len(m[0]) != 0 || string(m[2]) != "payload" {
			t.Fatalf("libzmq's DEALER received %q", m)
		}
	}
	wantFrames(t, [][]byte{{}, []byte("end"), {}, []byte("12345678")}, dealer.recv(t))

	// A REQ takes whatever comes next for its reply: what is left of a longer answer would be the next one's.
	brief, endpoint := newBoundRouter(t, RouterOptions{})
	answerAll(t, brief, 0, nil)
	req := newLibzmq(t, "REQ", "connect", endpoint)
	for _, request := range []string{"first", "second"} {
		req.send(t, 1, []byte(request))
		wantFrames(t, [][]byte{[]byte("end"), {}, []byte(request)}, req.recv(t))
	}
}

// A Dealer asks libzmq's ROUTER, which sees an identity and then the frames as given.
func TestDealerToLibzmq(t *testing.T) {
	z := newLibzmq(t, "ROUTER", "bind", "tcp://127.0.0.1:*")
	dealer := newDealer(t, z.endpoint)
	if err := dealer.Send([]byte{}, []byte("12345678")); err != nil {
		t.Fatal(err)
	}
	request := z.recv(t)
	if len(request) != 3 {
		t.Fatalf("libzmq's ROUTER received %q", request)
	}
	wantFrames(t, [][]byte{{}, []byte("12345678")}, request[1:])
	z.send(t, 500, request[0], []byte{}, []byte("seq"), make([]byte, 2<<10))
	for range 500 {
		m, err := dealer.Recv(within(t))
		if err != nil {
			t.Fatal(err)
		}
		wantFrames(t, [][]byte{{}, []byte("seq"), make([]byte, 2<<10)}, m)
	}
}
