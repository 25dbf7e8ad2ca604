package proxy

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"fleetdrill/gateway/fleet"
	"fleetdrill/gateway/index/maptree"
	"fleetdrill/gateway/policy"
	"fleetdrill/internal/contract"
	"fleetdrill/internal/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// wait bounds every wait for a condition in these tests; none of them needs more than a second on a machine
// that has nothing else to do.
const wait = time.Minute

// engine is a small upstream on a real socket.
type engine struct {
	id     string
	srv    *httptest.Server
	mu     sync.Mutex
	answer http.HandlerFunc
	hung   chan struct{} // closed = /health and /metrics answer
	seen   chan *http.Request
}

func newEngine(id string) *engine {
	e := &engine{id: id, answer: words("a", "b"), seen: make(chan *http.Request, 100), hung: make(chan struct{})}
	close(e.hung)
	mux := http.NewServeMux()
	alive := func(w http.ResponseWriter, r *http.Request) {
		e.mu.Lock()
		hung := e.hung
		e.mu.Unlock()
		select {
		case <-hung:
		case <-r.Context().Done():
		}
	}
	mux.HandleFunc("GET /health", alive)
	mux.HandleFunc("GET /metrics", alive)
	mux.HandleFunc("/v1/", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		e.mu.Lock()
		answer := e.answer
		e.mu.Unlock()
		e.seen <- r
		answer(w, r)
	})
	e.srv = httptest.NewServer(mux)
	return e
}

func (e *engine) set(h http.HandlerFunc) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.answer = h
}

// hang stops /health and /metrics from answering; the returned func heals it.
func (e *engine) hang() (heal func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	hung := make(chan struct{})
	e.hung = hung
	return sync.OnceFunc(func() { close(hung) })
}

// kill closes the port and resets every connection, as the end of a process does.
func (e *engine) kill() {
	e.srv.Listener.Close()
	e.srv.CloseClientConnections()
}

// words answers a stream of these words, with its proper end.
func words(texts ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, word := range texts {
			event(w, word)
		}
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	}
}

func event(w http.ResponseWriter, word string) {
	_, _ = io.WriteString(w, `data: {"text":"`+word+`"}`+"\n\n")
	_ = http.NewResponseController(w).Flush()
}

// rig is a proxy in front of engines, on real sockets.
type rig struct {
	t       *testing.T
	fleet   *fleet.Fleet
	proxy   *Proxy
	srv     *httptest.Server
	engines []*engine
	client  *http.Client
}

// newRig starts n engines w1..wn, all ready, with liveness about ten times as fast as usual. But silence is
// borne for longer than a busy machine keeps anybody waiting, unless a test is about it.
func newRig(t *testing.T, n int, tune ...func(*fleet.Timing, *Options)) *rig {
	t.Helper()
	timing, o := fleet.DefaultTiming(), Options{Index: maptree.New(), Retries: 2, MaxBody: 64 << 10, Registry: prometheus.NewRegistry()}
	timing.Ping, timing.PingVetoed, timing.PingSuspect = 50*time.Millisecond, 20*time.Millisecond, 10*time.Millisecond
	timing.Dead, timing.Stall, timing.Wedge = 100*time.Millisecond, wait, wait
	for _, fn := range tune {
		fn(&timing, &o)
	}
	picker, err := policy.New(policy.RoundRobin, 1)
	if err != nil {
		t.Fatal(err)
	}
	g := &rig{t: t, fleet: fleet.New(fleet.Options{Timing: timing, Picker: picker}), client: &http.Client{Transport: &http.Transport{}}}
	o.Fleet = g.fleet
	g.proxy = New(o)
	g.srv = httptest.NewServer(g.proxy.Handler())
	t.Cleanup(g.close)
	for i := range n {
		e := newEngine("w" + string(rune('1'+i)))
		g.engines = append(g.engines, e)
		if err := g.fleet.Add(contract.WorkerSpec{ID: e.id, URL: e.srv.URL, KVBlockSize: 16}); err != nil {
			t.Fatal(err)
		}
	}
	g.until("all routable", func(ws []contract.RoutingWorker) bool {
		for _, w := range ws {
			if !w.Routable {
				return false
			}
		}
		return true
	})
	return g
}

// impatient makes a worker's silence tell after a second. A pause of the whole process is forgiven before that.
func impatient(timing *fleet.Timing, _ *Options) { timing.Stall = time.Second }

func (g *rig) close() {
	// The guards are the heart of the matter: after every test, whatever it did, none is held.
	g.until("no guard held", func(ws []contract.RoutingWorker) bool {
		for _, w := range ws {
			if w.Inflight != 0 {
				return false
			}
		}
		return true
	})
	g.client.CloseIdleConnections()
	g.srv.Close()
	g.fleet.Close()
	for _, e := range g.engines {
		e.srv.CloseClientConnections()
		e.srv.Close()
	}
}

func (g *rig) until(what string, ok func([]contract.RoutingWorker) bool) {
	g.t.Helper()
	for end := time.Now().Add(wait); ; time.Sleep(time.Millisecond) {
		_, ws := g.fleet.Workers()
		if ok(ws) {
			return
		}
		if time.Now().After(end) {
			g.t.Fatalf("waited %s in vain: %s: %+v", wait, what, ws)
		}
	}
}

func (g *rig) worker(i int) contract.RoutingWorker {
	_, ws := g.fleet.Workers()
	return ws[i]
}

// post sends a request and returns the answer with its body unread.
func (g *rig) post(path, body string) *http.Response {
	g.t.Helper()
	resp, err := g.try(path, body)
	if err != nil {
		g.t.Fatal(err)
	}
	return resp
}

func (g *rig) try(path, body string) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	g.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.srv.URL+path, strings.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := g.client.Do(req)
	if err == nil {
		g.t.Cleanup(func() { resp.Body.Close() })
	}
	return resp, err
}

const streamed = `{"model":"m","prompt":" bab bac","stream":true}`

func (g *rig) stream() *http.Response { return g.post("/v1/completions", streamed) }

// read is the rest of an answer and how it ended.
func read(resp *http.Response) (string, error) {
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// line reads one line of a stream.
func line(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	s, err := r.ReadString('\n')
	if err != nil {
		t.Fatalf("reading a stream's line: %v", err)
	}
	return s
}
