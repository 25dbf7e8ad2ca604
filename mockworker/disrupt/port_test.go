package disrupt

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"fleetdrill/internal/clock"
	"fleetdrill/internal/contract"
	"fleetdrill/internal/leaks"
	"fleetdrill/mockworker/faults"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// patience bounds every wait for something that must happen.
const patience = time.Minute

// stand is a port with a server behind it that says hello.
type stand struct {
	t    *testing.T
	set  *faults.Set
	port *Port
	keep *Keeper
	exit chan int
}

func newStand(t *testing.T) *stand {
	t.Helper()
	s := &stand{t: t, set: faults.New(), exit: make(chan int, 1)}
	var err error
	if s.port, err = Listen("127.0.0.1:0", s.set, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	s.keep = NewKeeper(s.set, s.port, func(code int) { s.exit <- code })
	srv := &http.Server{ConnState: s.port.ConnState, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "hello") // the client's end is the test's own
	})}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(s.port) }()
	t.Cleanup(func() {
		s.keep.Close()
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serving ended with %v", err)
		}
	})
	return s
}

func (s *stand) arm(f faults.Spec) (heal func()) {
	s.t.Helper()
	id, err := s.set.Arm(clock.MonoNs(), f)
	if err != nil {
		s.t.Fatal(err)
	}
	s.keep.Apply()
	return func() {
		s.set.Heal(clock.MonoNs(), id)
		s.keep.Apply()
	}
}

// hello is what a new connection hears.
func (s *stand) hello() error {
	conn, err := net.Dial("tcp", s.port.Addr().String())
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); err != nil {
		return err
	}
	text, err := io.ReadAll(conn)
	if err == nil && !strings.HasSuffix(string(text), "hello") {
		return errors.New(string(text))
	}
	return err
}

func listener(mode string) faults.Spec {
	return faults.Spec{Kind: contract.FaultListener, HTTP: faults.HTTP{Mode: mode, Existing: faults.ExistingKeep}}
}

// Whatever a port was, it is itself again once healed, many times over.
func TestPortComesBack(t *testing.T) {
	s := newStand(t)
	for _, mode := range []string{faults.ModeClosed, faults.ModeReset, faults.ModeBlackhole, faults.ModeClosed, faults.ModeReset} {
		heal := s.arm(listener(mode))
		if mode == faults.ModeClosed {
			if err := s.hello(); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("closed: %v", err)
			}
		}
		heal()
		if err := s.hello(); err != nil {
			t.Errorf("after %s: %v", mode, err)
		}
	}
}

// Who took the port meanwhile keeps it; when it is free again, it is bound again.
func TestPortTakenMeanwhile(t *testing.T) {
	s := newStand(t)
	heal := s.arm(listener(faults.ModeClosed))
	thief, err := net.Listen("tcp", s.port.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	heal()
	if err := thief.Close(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); ; {
		err := s.hello()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the port stays closed: %v", err)
		}
	}
}

// A server that ends while its port is closed, or a black hole, ends.
func TestCloseWhileBroken(t *testing.T) {
	for _, mode := range []string{faults.ModeClosed, faults.ModeBlackhole} {
		s := newStand(t)
		s.arm(listener(mode))
		if mode == faults.ModeBlackhole {
			conn, err := net.Dial("tcp", s.port.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
		}
	} // the stand's end does the rest
}

// A process exits at its instant although nobody asks, unless it is healed before.
func TestExitAtAnInstant(t *testing.T) {
	s := newStand(t)
	heal := s.arm(faults.Spec{Kind: contract.FaultExit, Code: 3, HTTP: faults.HTTP{At: time.Hour}})
	heal()
	armed := time.Now()
	s.arm(faults.Spec{Kind: contract.FaultExit, Code: 7, HTTP: faults.HTTP{At: 20 * time.Millisecond}})
	select {
	case code := <-s.exit:
		if took := time.Since(armed); code != 7 || took < 20*time.Millisecond {
			t.Errorf("exit with %d after %s", code, took)
		}
	case <-time.After(patience):
		t.Error("the process lives on")
	}
	if list := s.set.List(clock.MonoNs()); list[0].State != contract.FaultHealed || list[1].State != contract.FaultDone {
		t.Errorf("states %+v", list)
	}
}

// A delayed health answer does not outlive its client.
func TestDelayEndsWithTheClient(t *testing.T) {
	set := faults.New()
	if _, err := set.Arm(0, faults.Spec{Kind: contract.FaultHealth, HTTP: faults.HTTP{Mode: faults.ModeDelay}, By: time.Hour}); err != nil {
		t.Fatal(err)
	}
	left := make(chan struct{})
	h := NewHandler(Options{Faults: set}, http.NotFoundHandler())
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r)
		close(left)
	}))
	defer srv.Close()
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	for len(set.List(0)[0].Evidence) == 0 {
		time.Sleep(time.Millisecond)
	}
	conn.Close()
	select {
	case <-left:
	case <-time.After(patience):
		t.Error("the handler waits on")
	}
}
