package disrupt

import (
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"fleetdrill/internal/clock"
	"fleetdrill/mockworker/faults"
)

// Options make a Handler.
type Options struct {
	Faults *faults.Set
	// Seed draws which requests fail.
	Seed uint64
	// BootUntil is the CLOCK_MONOTONIC ns up to which only the list of models answers; 0 is a worker that
	// is ready.
	BootUntil int64
	// Body is the engine's error body for a status, on a path.
	Body func(path string, status int, message string) []byte
}

// handler stands before the API.
type handler struct {
	o       Options
	next    http.Handler
	number  atomic.Uint64 // names requests that have no id
	started atomic.Bool   // BootUntil is over: spares the clock
}

// NewHandler puts the faults of requests in front of an API.
func NewHandler(o Options, next http.Handler) http.Handler {
	return &handler{o: o, next: next}
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !h.booted() && r.URL.Path != "/v1/models" {
		h.refuse(w, r, http.StatusServiceUnavailable, "the engine is starting")
		return
	}
	switch r.URL.Path {
	case "/health", "/ping", "/health_generate":
		if !h.health(w, r) {
			return
		}
	case "/v1/completions", "/v1/chat/completions", "/generate", "/inference/v1/generate":
		if status := h.o.Faults.Refuse(clock.MonoNs(), h.o.Seed, h.name(r)); status != 0 {
			h.refuse(w, r, status, fmt.Sprintf("the engine was told to answer %d", status))
			return
		}
	}
	h.next.ServeHTTP(w, r)
}

func (h *handler) booted() bool {
	if h.o.BootUntil == 0 || h.started.Load() {
		return true
	}
	if clock.MonoNs() < h.o.BootUntil {
		return false
	}
	h.started.Store(true)
	return true
}

// health says whether a request to a health path goes on; otherwise it is answered.
func (h *handler) health(w http.ResponseWriter, r *http.Request) bool {
	f := h.o.Faults.Health(clock.MonoNs(), r.URL.Path)
	if f.Fail {
		w.WriteHeader(http.StatusServiceUnavailable)
		return false
	}
	if f.Delay == 0 {
		return true
	}
	t := time.NewTimer(f.Delay)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-r.Context().Done(): // the client or the server goes
		return false
	}
}

// maxName bounds the id of a request as evidence shows it.
const maxName = 64

func (h *handler) name(r *http.Request) string {
	if !h.o.Faults.Live() {
		return ""
	}
	n := h.number.Add(1)
	if id := r.Header.Get("X-Request-Id"); id != "" {
		return id[:min(len(id), maxName)]
	}
	return "number " + strconv.FormatUint(n, 10)
}

// refuse answers with the engine's error JSON.
func (h *handler) refuse(w http.ResponseWriter, r *http.Request, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(h.o.Body(r.URL.Path, status, message)) // a client that is gone cannot be told so
}
