package proxy

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"fleetdrill/internal/clock"
)

// afterDone is what an engine is given to end a stream behind its [DONE].
const afterDone = time.Second

// deliver passes the answer on: its first byte together with its head, then piece by piece as they
// come. Before the piece that makes it whole goes out it is accounted for: who has an answer finds it
// counted.
func (a *attempt) deliver() (failure, error) {
	held := a.p.buffers.Get().(*[]byte)
	defer a.p.buffers.Put(held)
	buf := *held
	n, err := readSome(a.resp.Body, buf)
	if n == 0 {
		return a.deliverEmpty(err)
	}
	a.p.opts.Fleet.FirstByte(a.guard)
	a.head()
	for {
		a.tail.add(buf[:n])
		if a.whole(err) {
			a.account()
		}
		if n > 0 {
			if werr := a.pass(buf[:n]); werr != nil && !a.accounted {
				a.cancel(errClient)
				return clientGone, werr
			}
		}
		switch {
		case err != nil && a.accounted:
			return none, nil
		case err != nil:
			return a.finished(err)
		case a.accounted:
			a.expect(afterDone, errStall)
		case a.events:
			a.expect(a.p.opts.StreamStallTimeout, errStall)
		}
		n, err = a.resp.Body.Read(buf)
		a.heard()
		if n > 0 {
			a.p.opts.Fleet.Byte(a.guard)
		}
	}
}

// readSome reads until there is something, or an error.
func readSome(r io.Reader, buf []byte) (n int, err error) {
	for n == 0 && err == nil {
		n, err = r.Read(buf)
	}
	return n, err
}

// deliverEmpty ends an attempt whose answer has no body: fine for an error status, broken for a result.
func (a *attempt) deliverEmpty(err error) (failure, error) {
	if !errors.Is(err, io.EOF) {
		return a.failed(err)
	}
	if a.resp.StatusCode < 300 {
		return broken, errShort
	}
	a.account()
	a.head()
	return none, nil
}

// whole says whether the answer is complete with what was read of it, err being how that ended: at its end,
// and a stream at its [DONE], where clients stop to listen.
func (a *attempt) whole(err error) bool {
	if err == nil {
		return a.events && a.resp.StatusCode == http.StatusOK && (a.tail.ends("[DONE]\n\n") || a.tail.ends("[DONE]\r\n\r\n"))
	}
	if !errors.Is(err, io.EOF) {
		return false
	}
	f, _ := a.finished(err)
	return f == none
}

// account gives the guard back and counts the answer, once.
func (a *attempt) account() {
	if !a.accounted {
		a.accounted = true
		a.p.opts.Fleet.End(a.guard, a.outcome(none, nil))
		a.p.metrics.count(a.resp.StatusCode)
	}
}

// head writes the answer's head. From here on nothing can be retried.
func (a *attempt) head() {
	a.begun = true
	h := a.w.Header()
	copyHeader(h, a.resp.Header)
	a.routed(a.guard)
	a.events = strings.HasPrefix(h.Get("Content-Type"), "text/event-stream")
	if a.in.stream {
		a.p.metrics.ttft.Observe(time.Duration(clock.MonoNs() - a.arrived).Seconds())
	}
	a.heard()
	a.w.WriteHeader(a.resp.StatusCode)
}

// pass writes one piece to the client. While that waits, the client is the slow one and the worker owes
// nothing.
func (a *attempt) pass(piece []byte) error {
	a.guard.SetBlocked(true)
	defer a.guard.SetBlocked(false)
	// Moving the deadline costs a timer; once in a while is enough for a bound of this size.
	if now := clock.MonoNs(); now > a.deadline-int64(clientStall)/2 {
		a.deadline = now + int64(clientStall)
		_ = a.control.SetWriteDeadline(time.Now().Add(clientStall))
	}
	if _, err := a.w.Write(piece); err != nil {
		return err
	}
	if !a.events {
		return nil
	}
	return a.control.Flush()
}

// finished judges the end of the answer's body.
func (a *attempt) finished(err error) (failure, error) {
	trusting := a.p.cleanEndTrusting.Load()
	switch {
	case trusting && errors.Is(err, io.ErrUnexpectedEOF):
		return none, nil // closed in the middle, but in good order
	case !errors.Is(err, io.EOF):
		return a.failed(err)
	case !trusting && !a.complete():
		return broken, errShort
	default:
		return none, nil
	}
}

// complete says whether an answer that ended cleanly is whole: an engine that dies or is cut off may
// still close its connection in good order.
func (a *attempt) complete() bool {
	switch {
	case a.resp.StatusCode != http.StatusOK:
		return true
	case a.events:
		return a.tail.trimmedEnds("[DONE]")
	case strings.HasPrefix(a.resp.Header.Get("Content-Type"), "application/json"):
		return a.tail.trimmedEnds("}") || a.tail.trimmedEnds("]")
	}
	return true
}

// tail keeps the last bytes of an answer.
type tail struct {
	buf [16]byte
	n   int
}

func (t *tail) add(piece []byte) {
	if len(piece) >= len(t.buf) {
		t.n = copy(t.buf[:], piece[len(piece)-len(t.buf):])
		return
	}
	keep := min(t.n, len(t.buf)-len(piece))
	copy(t.buf[:], t.buf[t.n-keep:t.n])
	t.n = keep + copy(t.buf[keep:], piece)
}

func (t *tail) ends(s string) bool { return bytes.HasSuffix(t.buf[:t.n], []byte(s)) }

func (t *tail) trimmedEnds(s string) bool {
	return bytes.HasSuffix(bytes.TrimRight(t.buf[:t.n], " \r\n"), []byte(s))
}
