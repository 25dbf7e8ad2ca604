package api

import (
	"errors"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/loop"
)

// generate serves both generation routes.
func (s *Server) generate(c *gin.Context, f flavour) {
	j, bad := s.read(c, f)
	if bad != nil {
		sendError(c, *bad)
		return
	}
	w := newWriter(s, j)
	if j.stream {
		s.stream(c, w, j.rank, j.reqs)
		return
	}
	s.whole(c, w)
}

// whole answers with one JSON document.
func (s *Server) whole(c *gin.Context, w *writer) {
	switch ok, bad := s.collect(c, w.j.rank, w.j.reqs, w.choices); {
	case bad != nil:
		sendError(c, *bad)
	case ok:
		s.sendDocument(c, w)
	}
}

// maxDocument is the memory that is kept of an answer for the next.
const maxDocument = 16 << 10

// sendDocument sends an answer out of memory that is used again: net/http copies or writes it, and keeps nothing.
func (s *Server) sendDocument(c *gin.Context, w interface{ document(b []byte) []byte }) {
	b, _ := s.documents.Get().(*[]byte)
	if b == nil {
		b = new([]byte)
	}
	*b = w.document((*b)[:0])
	sendJSON(c, http.StatusOK, *b)
	if cap(*b) <= maxDocument {
		s.documents.Put(b)
	}
}

// collect has a rank generate all choices of a request. It is not ok when the client has gone, or when the
// engine has something against the request, which bad then says; what is left is aborted.
func (s *Server) collect(c *gin.Context, rank int, reqs []engine.Request, choices []choice) (ok bool, bad *apiError) {
	var few [1]*loop.Stream
	streams := few[:0]
	for _, r := range reqs {
		streams = append(streams, s.o.Ranks[rank].Submit(r, true))
	}
	left := c.Request.Context().Done()
	for i, st := range streams {
		select {
		case <-st.Ready():
		case <-left:
			abortAll(streams[i:])
			return false, nil
		}
		ids, state := st.Take(nil)
		if state.Err != nil {
			abortAll(streams)
			return false, engineError(state.Err)
		}
		choices[i].ids, choices[i].state = ids, state
	}
	return true, nil
}

func abortAll(streams []*loop.Stream) {
	for _, st := range streams {
		st.Abort()
	}
}

// engineError is the answer to what the engine has against a request.
func engineError(err error) *apiError {
	if errors.Is(err, engine.ErrTooLong) || errors.Is(err, engine.ErrNeverFits) || errors.Is(err, engine.ErrBadRequest) {
		return badRequest("", "%v", err)
	}
	return &apiError{status: http.StatusServiceUnavailable, kind: "ServiceUnavailableError", message: err.Error()}
}

// writeTimeout is how long a client may not read until it loses its stream: long enough for a paused gateway
// to come back, short enough that a vanished one does not keep a goroutine for ever.
const writeTimeout = 60 * time.Second

var (
	eventStream = []string{"text/event-stream; charset=utf-8"}
	doneChunk   = []byte("data: [DONE]\n\n")
)

// stream answers with server-sent events: one chunk per token, flushed when no further token waits.
func (s *Server) stream(c *gin.Context, w formatter, rank int, reqs []engine.Request) {
	o := newOutlet(s, c, w)
	c.Writer.Header()["Content-Type"] = eventStream
	c.Writer.WriteHeader(http.StatusOK)
	// The engine's server sends its headers once the request is accepted, long before the first token. They
	// must be out before the delivery goroutine can write behind them.
	if err := o.rc.Flush(); err != nil {
		return
	}
	for i, r := range reqs {
		o.streams = append(o.streams, s.o.Ranks[rank].SubmitTo(r, o, i))
	}
	o.finish(o.run())
}
