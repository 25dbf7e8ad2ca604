package zsock

import (
	"context"
	"testing"
	"time"

	"fleetdrill/internal/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// patience bounds every wait in these tests. It is no expectation: a test that needs it has failed.
const patience = 10 * time.Second

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

func newSub(t testing.TB, endpoint string, o SubOptions) *Sub {
	t.Helper()
	s, err := DialSub(endpoint, o)
	if err != nil {
		t.Fatal(err)
	}
	return closing(t, s)
}

// next receives one event and fails on another kind than want.
func (s *Sub) next(t testing.TB, want SubKind) SubEvent {
	t.Helper()
	e, err := s.Recv(within(t))
	if err != nil {
		t.Fatalf("receiving %v: %v", want, err)
	}
	if e.Kind != want {
		t.Fatalf("received %v (%q, %v), want %v", e.Kind, e.Frames, e.Err, want)
	}
	return e
}
