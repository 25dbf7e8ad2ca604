package proxy

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"fleetdrill/gateway/fleet"
	"fleetdrill/gateway/index"
	"fleetdrill/internal/clock"
	"fleetdrill/internal/contract"
)

// Options of a Proxy. Durations of zero mean no bound.
type Options struct {
	Fleet *fleet.Fleet
	// Index says what workers cache; nil = nothing is known.
	Index              index.Index
	Retries            int
	TTFTTimeout        time.Duration
	StreamStallTimeout time.Duration
	MaxBody            int64 // bytes
	Registry           *prometheus.Registry
	Log                *slog.Logger
}

// Proxy serves the OpenAI API. Its methods are safe for concurrent use.
type Proxy struct {
	opts    Options
	log     *slog.Logger
	metrics *metrics
	buffers sync.Pool // of *[]byte, chunkSize long

	budgetMu sync.Mutex
	budget   budget

	requests, lookups, hits, misses, retries atomic.Int64

	cleanEndTrusting atomic.Bool // a handicap
}

// chunkSize is the largest piece of an answer passed on at once, bytes: far above a token's event, and
// small enough for a thousand streams.
const chunkSize = 16 << 10

// New makes a proxy; it holds no goroutine of its own.
func New(o Options) *Proxy {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	p := &Proxy{opts: o, log: o.Log, metrics: newMetrics(o.Registry)}
	p.buffers.New = func() any { b := make([]byte, chunkSize); return &b }
	return p
}

// Counters are the fleet-wide counts of the routing state.
func (p *Proxy) Counters() contract.RoutingCounters {
	return contract.RoutingCounters{Requests: p.requests.Load(), Lookups: p.lookups.Load(), Hits: p.hits.Load(),
		Misses: p.misses.Load(), Retries: p.retries.Load()}
}

// SetHandicaps switches on exactly those of the list that concern answers (contract.Handicaps), running
// ones included.
func (p *Proxy) SetHandicaps(on []string) {
	p.cleanEndTrusting.Store(slices.Contains(on, contract.HandicapCleanEnd))
}

// Handler serves the proxy port.
func (p *Proxy) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, r *http.Request) { p.generate(w, r, parseCompletion) })
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) { p.generate(w, r, parseChat) })
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, r *http.Request) { p.serve(w, r, nil, prompt{}) })
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /readiness", p.readiness)
	mux.Handle("GET /metrics", promhttp.HandlerFor(p.opts.Registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		(&apiError{http.StatusNotFound, "NotFoundError", fmt.Sprintf("%s %s is not served here", r.Method, r.URL.Path)}).write(w)
	})
	return mux
}

func (p *Proxy) readiness(w http.ResponseWriter, _ *http.Request) {
	if !p.opts.Fleet.Ready() {
		noWorker().write(w)
	}
}

func noWorker() *apiError {
	return &apiError{http.StatusServiceUnavailable, "ServiceUnavailableError", "no worker can take requests now"}
}

// bodyTimeout is what a client is given to send its request body.
const bodyTimeout = 30 * time.Second

// generate serves a request with a prompt.
func (p *Proxy) generate(w http.ResponseWriter, r *http.Request, parse func([]byte) (prompt, error)) {
	body, err := p.readBody(w, r)
	var in prompt
	if err == nil {
		in, err = parse(body)
	}
	if err != nil {
		p.refuse(w, err)
		return
	}
	p.serve(w, r, body, in)
}

// refuse answers a request that never reached a worker.
func (p *Proxy) refuse(w http.ResponseWriter, err error) {
	var api *apiError
	if !errors.As(err, &api) {
		api = badRequest(err.Error())
	}
	p.metrics.count(api.status)
	api.write(w)
}

func (p *Proxy) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	limit := p.opts.MaxBody
	tooLarge := &apiError{http.StatusRequestEntityTooLarge, "BadRequestError", fmt.Sprintf("the body is larger than %d bytes", limit)}
	if r.ContentLength > limit {
		return nil, tooLarge
	}
	control := http.NewResponseController(w)
	// Errors mean that the writer knows no deadlines, as in tests; the read is then unbounded in time.
	_ = control.SetReadDeadline(time.Now().Add(bodyTimeout))
	defer func() { _ = control.SetReadDeadline(time.Time{}) }()
	body, err := readAll(http.MaxBytesReader(w, r.Body, limit), r.ContentLength)
	var over *http.MaxBytesError
	if errors.As(err, &over) {
		return nil, tooLarge
	}
	if err != nil {
		return nil, badRequest("the body could not be read: " + err.Error())
	}
	return body, nil
}

// readAll reads a body of a known length (-1 = unknown) with one allocation.
func readAll(r io.Reader, length int64) ([]byte, error) {
	if length < 0 {
		return io.ReadAll(r)
	}
	body := make([]byte, length)
	_, err := io.ReadFull(r, body)
	return body, err
}

// draw takes a retry from the fleet-wide budget.
func (p *Proxy) draw() bool {
	p.budgetMu.Lock()
	defer p.budgetMu.Unlock()
	return p.budget.retry(clock.MonoNs())
}

func (p *Proxy) countRequest() {
	p.requests.Add(1)
	p.budgetMu.Lock()
	defer p.budgetMu.Unlock()
	p.budget.request(clock.MonoNs())
}
