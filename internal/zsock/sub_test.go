package zsock

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"
)

// A partition is seen as Down although no connection breaks, the subscriber beside it notices nothing, and
// after the partition the subscriber is up again and misses nothing new.
func TestPartition(t *testing.T) {
	t.Parallel()
	atSomeBeat(t, func(beat time.Duration) error {
		pub, endpoint := newBoundPub(t, PubOptions{})
		relay, behind := newRelay(t, endpoint)
		victim := newSub(t, behind, SubOptions{Heartbeat: beat})
		healthy := newSub(t, endpoint, SubOptions{})
		if _, err := victim.expect(within(t), SubUp); err != nil {
			return err
		}
		healthy.next(t, SubUp)

		relay.partition()
		var silent errSilent
		if e, err := victim.expect(within(t), SubDown); err != nil || !errors.As(e.Err, &silent) {
			return fmt.Errorf("down because of %v, %v", e.Err, err)
		}
		for i := range uint64(100) {
			pub.Send(numbered("", i, make([]byte, 2<<10))...)
			if e := healthy.next(t, SubMessage); seqOf(e.Frames) != i {
				t.Fatalf("the healthy subscriber received %d, want %d", seqOf(e.Frames), i)
			}
		}

		relay.heal()
		if _, err := victim.expect(within(t), SubUp); err != nil {
			return err
		}
		pub.Send(numbered("", 1000, nil)...)
		e, err := victim.expect(within(t), SubMessage)
		if err == nil && seqOf(e.Frames) != 1000 {
			t.Errorf("after the partition the first message is %d", seqOf(e.Frames))
		}
		return err
	})
}

// An idle publisher that answers PINGs stays up: several times the patience passes without an event.
func TestIdlePublisherStaysUp(t *testing.T) {
	t.Parallel()
	_, endpoint := newBoundPub(t, PubOptions{})
	atSomeBeat(t, func(beat time.Duration) error {
		sub := newSub(t, endpoint, SubOptions{Heartbeat: beat})
		if _, err := sub.expect(within(t), SubUp); err != nil {
			return err
		}
		return sub.idle(t, 5*missesProven*beat)
	})
}

// A publisher that knows no PING and has nothing to say is taken for up after one heartbeat and for gone
// after ten; what the subscriber sends until then is one subscription and a PING at least.
func TestPublisherWithoutPong(t *testing.T) {
	t.Parallel()
	endpoint := fakePeer(t, zmq4.Pub, func(nc net.Conn, _ *zmq4.Conn) { _, _ = io.Copy(io.Discard, nc) })
	const heartbeat = 50 * time.Millisecond
	sub := newSub(t, endpoint, SubOptions{Heartbeat: heartbeat})
	up := sub.next(t, SubUp)
	down := sub.next(t, SubDown)
	var silent errSilent
	if !errors.As(down.Err, &silent) || silent.after != missesUnproven*heartbeat {
		t.Errorf("down because of %v", down.Err)
	}
	if after := time.Duration(down.MonoNs - up.MonoNs); after < (missesUnproven-2)*heartbeat {
		t.Errorf("given up %v after up", after)
	}
	sub.next(t, SubUp) // and dialled again
}

// One that knows no PING but has something to say stays, for as long as it says something.
func TestChattyPublisherWithoutPong(t *testing.T) {
	t.Parallel()
	atSomeBeat(t, func(beat time.Duration) error {
		endpoint := fakePeer(t, zmq4.Pub, func(nc net.Conn, conn *zmq4.Conn) {
			ticker := time.NewTicker(beat / 2)
			defer ticker.Stop()
			for range ticker.C {
				if conn.SendMsg(zmq4.NewMsgString("hello")) != nil {
					return
				}
			}
		})
		sub := newSub(t, endpoint, SubOptions{Heartbeat: beat})
		if _, err := sub.expect(within(t), SubUp); err != nil {
			return err
		}
		for range 3 * missesUnproven {
			if _, err := sub.expect(within(t), SubMessage); err != nil {
				return err
			}
		}
		return nil
	})
}

// A wait that ran out says nothing when it was this process that did not run: the bytes are found by the
// next wait. Only a row of waits without a byte is silence.
func TestSilenceIsCountedInWaits(t *testing.T) {
	script := &scriptedConn{reads: []int{0, 0, 5, 0, 0, 0, 5}}
	var asked []int
	s := &socket{nc: script, wait: time.Hour, silent: func(misses int) error {
		asked = append(asked, misses)
		if misses == missesProven {
			return errSilent{}
		}
		return nil
	}}
	buf := make([]byte, 10)
	if n, err := s.Read(buf); n != 5 || err != nil {
		t.Errorf("first read: %d, %v", n, err)
	}
	if _, err := s.Read(buf); !errors.As(err, new(errSilent)) {
		t.Errorf("second read: %v", err)
	}
	want := []int{1, 2, 1, 2, 3}
	if len(asked) != len(want) {
		t.Fatalf("asked at %v, want %v", asked, want)
	}
	for i := range want {
		if asked[i] != want[i] {
			t.Fatalf("asked at %v, want %v", asked, want)
		}
	}
}

// scriptedConn is a connection whose reads return so many bytes; 0 is a deadline that ran out.
type scriptedConn struct {
	net.Conn
	reads []int
}

func (c *scriptedConn) SetReadDeadline(time.Time) error { return nil }

func (c *scriptedConn) Read([]byte) (int, error) {
	n := c.reads[0]
	c.reads = c.reads[1:]
	if n == 0 {
		return 0, os.ErrDeadlineExceeded
	}
	return n, nil
}

// Redial ends a pause of any length, and makes the next one short.
func TestRedialEndsBackoff(t *testing.T) {
	s := &Sub{
		o:    SubOptions{BackoffMin: time.Millisecond, BackoffMax: time.Hour},
		host: newHost(nil), nudge: make(chan struct{}, 1),
	}
	pause := backoff{min: time.Millisecond, max: time.Hour, delay: time.Hour}
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		s.wait(&pause)
	}()
	s.Redial()
	s.Redial() // a second one is the same one
	select {
	case <-waited:
	case <-within(t).Done():
		t.Fatal("the pause goes on")
	}
	if pause.next() != time.Millisecond {
		t.Errorf("the next pause is %v", pause.delay)
	}
}

// A subscriber nobody receives from holds a bounded number of messages and, once it is read, goes on
// where it was: that it did not read is no silence of the publisher.
func TestSlowReceiver(t *testing.T) {
	t.Parallel()
	pub, endpoint := newBoundPub(t, PubOptions{})
	atSomeBeat(t, func(beat time.Duration) error {
		sub := newSub(t, endpoint, SubOptions{Queue: 1, Heartbeat: beat})
		defer sub.Close()
		if _, err := sub.expect(within(t), SubUp); err != nil {
			return err
		}
		const n = 5000
		for i := range uint64(n) {
			pub.Send(numbered("", i, make([]byte, 2<<10))...)
		}
		<-time.After(2 * missesProven * beat) // the receiver's own delay is what is under test
		for i := range uint64(n) {
			e, err := sub.expect(within(t), SubMessage)
			if err != nil {
				return err
			}
			if seqOf(e.Frames) != i {
				t.Fatalf("received %d, want %d", seqOf(e.Frames), i)
			}
		}
		return nil
	})
}
