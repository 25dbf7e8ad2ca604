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
	st := s.o.Ranks[j.rank].Submit(j.req, !j.stream)
	w := newWriter(s, j)
	if j.stream {
		s.stream(c, w, st)
		return
	}
	s.whole(c, w, st)
}

// whole answers with one JSON document.
func (s *Server) whole(c *gin.Context, w *writer, st *loop.Stream) {
	select {
	case <-st.Ready():
	case <-c.Request.Context().Done():
		st.Abort()
		return
	}
	ids, state := st.Take(nil)
	if state.Err != nil {
		sendError(c, *engineError(state.Err))
		return
	}
	sendJSON(c, http.StatusOK, w.document(ids, state))
}

// engineError is the answer to what the engine has against a request.
func engineError(err error) *apiError {
	if errors.Is(err, engine.ErrTooLong) || errors.Is(err, engine.ErrNeverFits) || errors.Is(err, engine.ErrBadRequest) {
		return badRequest("", "%v", err)
	}
	return &apiError{status: http.StatusServiceUnavailable, kind: "ServiceUnavailableError", message: err.Error()}
}

// A client that does not read for writeTimeout loses its stream: long enough for a paused gateway to come
// back, short enough that a vanished one does not keep a goroutine for ever. The deadline is moved on only
// every deadlineStep, since moving it costs as much as formatting a chunk.
const (
	writeTimeout = 60 * time.Second
	deadlineStep = 5 * time.Second
)

var (
	eventStream = []string{"text/event-stream; charset=utf-8"}
	doneChunk   = []byte("data: [DONE]\n\n")
)

// stream answers with server-sent events: one chunk per token, flushed when no further token waits.
func (s *Server) stream(c *gin.Context, w *writer, st *loop.Stream) {
	rc := http.NewResponseController(c.Writer)
	c.Writer.Header()["Content-Type"] = eventStream
	c.Writer.WriteHeader(http.StatusOK)
	// The engine's server sends its headers once the request is accepted, long before the first token.
	if err := rc.Flush(); err != nil {
		st.Abort()
		return
	}
	gone := c.Request.Context().Done()
	var deadline time.Time
	var ids []uint32
	for state := (loop.State{}); !state.Done; {
		select {
		case <-st.Ready():
		case <-gone:
			st.Abort()
			return
		}
		ids, state = st.Take(ids)
		if errors.Is(state.Err, loop.ErrClosed) {
			panic(http.ErrAbortHandler) // a broken stream must not end like a whole one
		}
		if now := time.Now(); deadline.Sub(now) < writeTimeout-deadlineStep {
			deadline = now.Add(writeTimeout)
			_ = rc.SetWriteDeadline(deadline) // every real connection has deadlines
		}
		_, err := c.Writer.Write(w.chunks(ids, state))
		if err == nil {
			err = rc.Flush()
		}
		if err != nil {
			st.Abort()
			return
		}
	}
}
