package lab

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"fleetdrill/internal/deadport"
	"fleetdrill/internal/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// newLine is a line to a server of the test's own.
func newLine(t *testing.T, h http.HandlerFunc) (*Line, *httptest.Server) {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	l, err := NewLine(API{Base: s.URL, Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l, s
}

func TestLineKeepsItsConnection(t *testing.T) {
	var remote atomic.Value
	moves := 0
	l, s := newLine(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" || r.URL.Path != "/admin/truth" {
			t.Errorf("asked %s with %q", r.URL.Path, r.Header.Get("Authorization"))
		}
		if remote.Swap(r.RemoteAddr) != r.RemoteAddr {
			moves++
		}
		fmt.Fprintf(w, `{"epoch": 3, "counters": {"x": 1}, "ranks": [{"rank": 0, "next_seq": 7, "digest": "18446744073709551615"}], "pad": %q}`,
			strings.Repeat("x", 40<<10)) // longer than any buffer: chunked
	})
	for range 3 {
		g, err := l.Glance(t.Context())
		if err != nil || g.Epoch != 3 || len(g.Ranks) != 1 || g.Ranks[0].NextSeq != 7 || g.Ranks[0].Digest != 1<<64-1 {
			t.Fatalf("%+v, %v", g, err)
		}
	}
	if moves != 1 {
		t.Errorf("%d connections for three questions", moves)
	}
	// A server that closed the connection meanwhile is asked again on another one.
	s.CloseClientConnections()
	if _, err := l.Glance(t.Context()); err != nil || moves != 2 {
		t.Errorf("after a closed connection: %v, %d connections", err, moves)
	}
}

// TestLineDoesNotMixAnswers: an answer that was given up on must not be taken for the next one.
func TestLineDoesNotMixAnswers(t *testing.T) {
	asked, let := make(chan struct{}), make(chan struct{})
	var n atomic.Int64
	l, _ := newLine(t, func(w http.ResponseWriter, r *http.Request) {
		i := n.Add(1)
		if i == 1 {
			close(asked)
			<-let
		}
		fmt.Fprintf(w, `{"epoch": %d}`, i)
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	if _, err := l.Glance(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
	close(let)
	if g, err := l.Glance(t.Context()); err != nil || g.Epoch != 2 {
		t.Errorf("%+v, %v: want the answer to the second question", g, err)
	}
}

func TestLineSaysWhatWentWrong(t *testing.T) {
	l, _ := newLine(t, func(w http.ResponseWriter, r *http.Request) { http.Error(w, "no", http.StatusServiceUnavailable) })
	if _, err := l.RoutingState(t.Context()); err == nil || !strings.Contains(err.Error(), "status 503") || !strings.Contains(err.Error(), "/routing/state") {
		t.Errorf("error %v", err)
	}
	dead, err := NewLine(API{Base: "http://" + deadport.New(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer dead.Close()
	if _, err := dead.RoutingState(t.Context()); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("error %v", err)
	}
}
