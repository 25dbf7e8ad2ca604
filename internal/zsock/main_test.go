package zsock

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"fleetdrill/internal/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// patience bounds every wait in these tests. It is no expectation: a test that needs it has failed.
const patience = time.Minute

func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// eventually waits for a condition of a socket's counters.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// closing closes a socket at the end of a test and fails it on leaked goroutines.
func closing[T interface{ Close() error }](t testing.TB, socket T) T {
	t.Helper()
	t.Cleanup(func() {
		if err := socket.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	return socket
}

func newBoundPub(t testing.TB, o PubOptions) (*Pub, string) {
	t.Helper()
	p := closing(t, NewPub(o))
	bound, err := p.Bind("tcp://*:*")
	if err != nil {
		t.Fatal(err)
	}
	return p, bound
}

// unhurried is a heartbeat of tests that are not about silence: however long the machine does not run one of two
// peers, the other does not take it for gone.
const unhurried = time.Hour

// newSub is a subscriber whose heartbeat is unhurried if o has none.
func newSub(t testing.TB, endpoint string, o SubOptions) *Sub {
	t.Helper()
	if o.Heartbeat == 0 {
		o.Heartbeat = unhurried
	}
	s, err := DialSub(endpoint, o)
	if err != nil {
		t.Fatal(err)
	}
	return closing(t, s)
}

// next receives one event and fails on another kind than want.
func (s *Sub) next(t testing.TB, want SubKind) SubEvent {
	t.Helper()
	e, err := s.expect(within(t), want)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// expect receives one event; another kind than want is an error.
func (s *Sub) expect(ctx context.Context, want SubKind) (SubEvent, error) {
	e, err := s.Recv(ctx)
	if err != nil {
		return e, fmt.Errorf("receiving %v: %w", want, err)
	}
	if e.Kind != want {
		return e, fmt.Errorf("received %v (%q, %v), want %v", e.Kind, e.Frames, e.Err, want)
	}
	return e, nil
}

// idle waits for so long and takes any event for an error.
func (s *Sub) idle(t testing.TB, long time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	if e, err := s.Recv(ctx); !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("an idle publisher caused %v (%v), %v", e.Kind, e.Err, err)
	}
	return nil
}

// atSomeBeat tries something with heartbeats, and with longer ones when it fails. A peer that the machine did
// not run for some heartbeats is like one that is gone, and how long that can be nobody knows; but it does not
// grow with the heartbeat. What a socket does wrong, it does wrong at any.
func atSomeBeat(t testing.TB, try func(beat time.Duration) error) {
	t.Helper()
	const shortest, longest = 100 * time.Millisecond, 6400 * time.Millisecond
	for beat := shortest; ; beat *= 4 {
		err := try(beat)
		if err == nil {
			return
		}
		if beat >= longest {
			t.Fatalf("with a heartbeat of %v: %v", beat, err)
		}
		t.Logf("once more: with a heartbeat of %v: %v", beat, err)
	}
}
