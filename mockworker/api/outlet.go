package api

import (
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"fleetdrill/internal/clock"
	"fleetdrill/mockworker/faults"
	"fleetdrill/mockworker/loop"
)

// outlet is where one stream of events leaves: the tokens of a request's choices go in, chunks go out.
//
// While the client reads, the loop's delivery goroutine formats and writes each chunk with one call that
// cannot block (News), the last one too, so that every token leaves in its turn. As soon as anything else is to
// be done - the socket is full, everything is written, the stream is to be cut - the request's own goroutine
// takes over (manual), may wait as long as it likes, and gives the stream back when it has caught up.
type outlet struct {
	s    *Server
	c    *gin.Context
	rc   *http.ResponseController
	link *link // nil: the goroutine does everything
	wake chan struct{}

	mu     sync.Mutex // guards everything below
	manual bool
	w      formatter
	ids    []uint32
	// rest is what the socket did not take of a chunk.
	rest []byte
	// cut is how the stream is to be broken off, sent counts its tokens up to then.
	cut    *faults.Cut
	sent   int
	silent bool

	// Belonging to the request's goroutine.
	streams  []*loop.Stream
	buf      []byte
	deadline time.Time
}

var _ loop.Sink = (*outlet)(nil)

// formatter makes the chunks of one stream, in one API's shapes.
type formatter interface {
	// chunks appends the tokens that came for choice i and, once all choices are done, how the stream ends.
	chunks(b []byte, i int, ids []uint32, state loop.State) []byte
	ended(i int) bool
	allEnded() bool
	// request is its id, for the evidence of faults.
	request() string
}

func newOutlet(s *Server, c *gin.Context, w formatter) *outlet {
	o := &outlet{s: s, c: c, w: w, rc: http.NewResponseController(c.Writer), link: linkOf(c.Request), wake: make(chan struct{}, 1)}
	o.cut = s.o.Faults.DrawCut(clock.MonoNs(), s.o.Seed)
	o.manual = o.link == nil || o.cut != nil
	return o
}

// News implements loop.Sink. The request's goroutine is woken Later: a thousand that end with one step would
// otherwise run between the tokens of the others.
func (o *outlet) News(st *loop.Stream, scratch []byte) (grown []byte, wake bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.manual {
		return scratch, true
	}
	if o.w.ended(st.Choice()) {
		return scratch, false // it was told twice, and everything was there the first time
	}
	ids, state, ok := st.TakeSound(o.ids)
	o.ids = ids
	if !ok {
		o.manual = true
		return scratch, true
	}
	if len(ids) == 0 && !state.Done {
		return scratch, false
	}
	if cap(scratch) < frameRoom {
		scratch = make([]byte, 0, 4096)
	}
	scratch = o.w.chunks(scratch[:frameRoom], st.Choice(), ids, state)
	framed := frame(scratch)
	n, err := o.link.write(framed)
	if n < len(framed) || err != nil { // whatever it is, the goroutine will see it too
		o.rest = append(o.rest[:0], framed[n:]...)
	}
	o.manual = len(o.rest) > 0 || o.w.allEnded()
	return scratch, o.manual
}

// Later implements loop.Sink: the stream is the goroutine's.
func (o *outlet) Later() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// ending is how a stream is over.
type ending uint8

const (
	goesOn ending = iota
	whole         // everything is written
	gone          // the client is
	broken        // the engine is
	cutOff        // by a fault
)

// run serves the stream to its end.
func (o *outlet) run() ending {
	left := o.c.Request.Context().Done()
	for {
		select {
		case <-o.wake:
		case <-left:
			return gone
		}
		if end := o.catchUp(); end != goesOn {
			return end
		}
	}
}

// catchUp writes, waiting for the client, until nothing is left or the stream is over.
func (o *outlet) catchUp() ending {
	for {
		rest := o.takeRest()
		if len(rest) > 0 {
			if err := o.writeRest(rest); err != nil {
				return gone
			}
			continue
		}
		buf, end := o.next()
		if len(buf) > 0 {
			if err := o.write(buf, end != whole); err != nil {
				return gone
			}
		}
		if end != goesOn || len(buf) == 0 {
			return end
		}
	}
}

func (o *outlet) takeRest() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	rest := o.rest
	o.rest = nil
	return rest
}

// next formats what is there. Without anything it gives the stream back to the delivery goroutine.
func (o *outlet) next() (buf []byte, end ending) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf = o.buf[:0]
	for _, st := range o.streams {
		if o.w.ended(st.Choice()) {
			continue
		}
		ids, state := st.Take(o.ids)
		o.ids = ids
		if errors.Is(state.Err, loop.ErrClosed) {
			return nil, broken
		}
		if o.silent {
			continue
		}
		if end = o.trim(&ids); end == cutOff {
			o.buf = o.w.chunks(o.buf, st.Choice(), ids, loop.State{Cached: state.Cached})
			return o.buf, end
		}
		o.buf = o.w.chunks(o.buf, st.Choice(), ids, state)
	}
	if o.w.allEnded() {
		return o.buf, whole
	}
	if len(o.buf) == 0 && !o.silent && o.link != nil && o.cut == nil {
		o.manual = false
	}
	return o.buf, goesOn
}

// trim cuts ids to the tokens that may still go out, and says whether the stream ends there.
func (o *outlet) trim(ids *[]uint32) ending {
	if o.cut == nil {
		return goesOn
	}
	room := o.cut.After - o.sent
	o.sent += len(*ids)
	if len(*ids) <= room {
		return goesOn
	}
	if !o.s.o.Faults.Cut(clock.MonoNs(), o.cut, o.w.request()) {
		o.cut = nil // healed while the stream ran
		return goesOn
	}
	*ids = (*ids)[:room]
	if o.cut.How == faults.HowSilence {
		o.silent = true
	}
	return cutOff
}

// write writes chunks through net/http, and flushes them unless the end of the answer will.
func (o *outlet) write(b []byte, flush bool) error {
	// Moving a deadline costs as much as formatting a chunk.
	if now := time.Now(); o.deadline.Sub(now) < o.s.o.WriteTimeout-o.s.o.WriteTimeout/16 {
		o.deadline = now.Add(o.s.o.WriteTimeout)
		_ = o.rc.SetWriteDeadline(o.deadline) // every real connection has deadlines
	}
	_, err := o.c.Writer.Write(b)
	if err == nil && flush {
		err = o.rc.Flush()
	}
	return err
}

// writeRest writes the rest of a chunk that was begun behind net/http's back.
func (o *outlet) writeRest(b []byte) error {
	o.deadline = time.Now().Add(o.s.o.WriteTimeout)
	_ = o.rc.SetWriteDeadline(o.deadline)
	_, err := o.link.conn.Write(b)
	return err
}

// abort makes the engine forget the request.
func (o *outlet) abort() {
	for _, st := range o.streams {
		st.Abort()
	}
}

// finish does what is left to do at an ending.
func (o *outlet) finish(end ending) {
	switch end {
	case whole:
		if !o.deadline.IsZero() {
			_ = o.rc.SetWriteDeadline(time.Time{}) // the next request on this connection has its own
		}
	case gone:
		// It may only have stopped reading. Then what it reads in the end must not look whole, and the kernel
		// need not keep megabytes for it: a reset drops them.
		o.abort()
		reset(o.c.Writer)
	case broken:
		panic(http.ErrAbortHandler) // a broken stream must not end like a whole one
	case cutOff:
		o.breakOff()
	}
}

// breakOff ends a stream as its fault says.
func (o *outlet) breakOff() {
	switch o.cut.How {
	case faults.HowSilence: // until the client gives up; the engine knows nothing of it
		if o.run() != broken {
			o.abort()
		}
		panic(http.ErrAbortHandler)
	case faults.HowCleanEnd: // as when a recovery middleware swallows the panic: a whole answer, cut short
		o.abort()
	case faults.HowRST:
		o.abort()
		reset(o.c.Writer)
	default:
		o.abort()
		panic(http.ErrAbortHandler)
	}
}

// reset closes a connection so that the client sees a reset. gin's own Hijack refuses after the first byte.
func reset(w gin.ResponseWriter) {
	u, ok := w.(interface{ Unwrap() http.ResponseWriter })
	if !ok {
		panic(http.ErrAbortHandler)
	}
	h, ok := u.Unwrap().(http.Hijacker)
	if !ok {
		panic(http.ErrAbortHandler)
	}
	conn, _, err := h.Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // a closed connection cannot be reset, and need not be
	}
	_ = conn.Close()
}
