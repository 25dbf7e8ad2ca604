package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"strconv"
	"sync/atomic"
	"time"

	"fleetdrill/gateway/fleet"
	"fleetdrill/internal/clock"
	"fleetdrill/internal/contract"
)

// Options of a Server.
type Options struct {
	Fleet    *fleet.Fleet
	Counters func() contract.RoutingCounters
	Policy   string
	KVIndex  string
	// Normalize checks a worker that is to be registered and fills its defaults.
	Normalize func(*contract.WorkerSpec) error
	// ApplyHandicaps is called with the whole set whenever it changes.
	ApplyHandicaps func(on []string)
	// Token is asked for on every request; empty = none.
	Token string
	Log   *slog.Logger
}

// Server serves the admin port. Its methods are safe for concurrent use.
type Server struct {
	opts      Options
	handicaps handicaps
}

// New makes a server with the given handicaps switched on; an unknown one is an error.
func New(o Options, on []string) (*Server, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{opts: o, handicaps: handicaps{apply: o.ApplyHandicaps, log: o.Log}}
	return s, s.handicaps.set(on)
}

// Handler serves the admin API.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /routing/state", s.getState)
	mux.HandleFunc("GET /routing/dump", s.getDump)
	mux.HandleFunc("GET /routing/events", s.getEvents)
	mux.HandleFunc("PUT /routing/handicaps", s.putHandicaps)
	mux.HandleFunc("GET /workers", s.getWorkers)
	mux.HandleFunc("POST /workers", s.postWorker)
	mux.HandleFunc("DELETE /workers/{id}", s.deleteWorker)
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return guarded(s.opts.Token, mux)
}

// State is the routing state now.
func (s *Server) State() contract.RoutingState {
	mono, workers := s.opts.Fleet.Workers()
	return contract.RoutingState{MonoNs: mono, Wall: clock.Wall(), Policy: s.opts.Policy, KVIndex: s.opts.KVIndex,
		Handicaps: s.handicaps.list(), Counters: s.opts.Counters(), Workers: workers}
}

func (s *Server) getState(w http.ResponseWriter, _ *http.Request) { write(w, http.StatusOK, s.State()) }

func (s *Server) getDump(w http.ResponseWriter, r *http.Request) {
	rank := 0
	if text := r.URL.Query().Get("rank"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			fail(w, http.StatusBadRequest, fmt.Sprintf("rank %q is not a whole number", text))
			return
		}
		rank = n
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	err := s.opts.Fleet.WriteDump(w, r.URL.Query().Get("worker"), rank)
	if errors.Is(err, fleet.ErrUnknownWorker) {
		fail(w, http.StatusNotFound, err.Error())
	} else if err != nil {
		// Lines are out already: only a cut connection says that they are not all.
		panic(http.ErrAbortHandler)
	}
}

// keepAlive is how often a quiet event stream shows that it lives.
const keepAlive = 15 * time.Second

// getEvents streams one server-sent event per transition. A client that lags too far is cut off, since a
// hole would look like quiet.
func (s *Server) getEvents(w http.ResponseWriter, r *http.Request) {
	var missed atomic.Int64
	news, stop := s.opts.Fleet.Watch(&missed)
	defer stop()
	control := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	ticker := time.NewTicker(keepAlive)
	defer ticker.Stop()
	for {
		if err := control.Flush(); err != nil || missed.Load() > 0 {
			panic(http.ErrAbortHandler)
		}
		select {
		case <-r.Context().Done():
			return
		case <-ticker.C:
			_, _ = io.WriteString(w, ": quiet\n\n")
		case t := <-news:
			line, err := json.Marshal(t)
			if err != nil {
				panic(http.ErrAbortHandler)
			}
			_, _ = fmt.Fprintf(w, "data: %s\n\n", line)
		}
	}
}

func (s *Server) getWorkers(w http.ResponseWriter, _ *http.Request) {
	write(w, http.StatusOK, map[string]any{"workers": s.opts.Fleet.Specs()})
}

func (s *Server) postWorker(w http.ResponseWriter, r *http.Request) {
	var spec contract.WorkerSpec
	if !read(w, r, &spec) {
		return
	}
	if err := s.opts.Normalize(&spec); err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	if err := s.opts.Fleet.Add(spec); err != nil {
		fail(w, http.StatusConflict, err.Error())
		return
	}
	write(w, http.StatusCreated, spec)
}

func (s *Server) deleteWorker(w http.ResponseWriter, r *http.Request) {
	if err := s.opts.Fleet.Remove(r.PathValue("id")); err != nil {
		fail(w, http.StatusNotFound, err.Error())
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// maxBody bounds the bodies of this port, bytes.
const maxBody = 1 << 20

// read decodes a strict JSON body, or answers 400.
func read(w http.ResponseWriter, r *http.Request, into any) bool {
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		fail(w, http.StatusBadRequest, fmt.Sprintf("reading the body (at most %d bytes): %v", maxBody, err))
		return false
	}
	return true
}

func write(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	// An error here is the client's connection, which has no other way to hear of it.
	_ = json.NewEncoder(w).Encode(body)
}

func fail(w http.ResponseWriter, code int, message string) {
	write(w, code, map[string]string{"error": message})
}
