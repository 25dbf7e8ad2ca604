package load

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"fleetdrill/internal/clock"
)

const (
	// readBuffer is one read of an answer, in bytes: some tens of token chunks.
	readBuffer = 16 << 10
	// maxErrorBody is how much of an error answer is read for its message, in bytes.
	maxErrorBody = 4 << 10
	// maxBody bounds an answer that is not streamed, in bytes.
	maxBody = 16 << 20
)

// buffers holds read buffers of *[]byte; thousands of requests may be reading at once.
var buffers = sync.Pool{New: func() any { b := make([]byte, readBuffer); return &b }}

// head records the response head.
func (f *flight) head(now int64, resp *http.Response) {
	h := resp.Header
	f.update(func(rec *Record) {
		rec.HeadersNs, rec.LastNs, rec.Status = now, now, resp.StatusCode
		rec.Worker = h.Get("X-Routed-Worker")
		rec.Attempts = number(h.Get("X-Attempts"), 0)
		rec.Predicted = number(h.Get("X-Predicted-Cached-Tokens"), -1)
	})
}

func number(s string, otherwise int) int {
	if n, err := strconv.Atoi(s); err == nil {
		return n
	}
	return otherwise
}

// read follows the body to its end.
func (r *Run) read(f *flight, resp *http.Response) error {
	body := io.Reader(resp.Body)
	if r.o.ReadPause > 0 {
		body = slowReader{resp.Request.Context(), body, r.o.ReadPause}
	}
	switch {
	case resp.StatusCode >= http.StatusBadRequest:
		return f.refusal(body, resp.StatusCode)
	case resp.StatusCode != http.StatusOK:
		return failf("unexpected status %d", resp.StatusCode)
	case strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream"):
		return f.stream(body)
	default:
		return f.whole(body)
	}
}

// slowReader pauses before each read; a cut request does not wait for the pause.
type slowReader struct {
	ctx   context.Context
	r     io.Reader
	pause time.Duration
}

func (s slowReader) Read(p []byte) (int, error) {
	t := time.NewTimer(s.pause)
	defer t.Stop()
	select {
	case <-t.C:
		return s.r.Read(p)
	case <-s.ctx.Done():
		return 0, s.ctx.Err()
	}
}

// refusal turns an error answer into an error. Its body is worth a message and no more: when it cannot
// be read the status alone says enough.
func (f *flight) refusal(body io.Reader, status int) error {
	text, _ := io.ReadAll(io.LimitReader(body, maxErrorBody))
	f.update(func(rec *Record) { rec.LastNs = clock.MonoNs() })
	if c, err := parseChunk(text); err == nil && c.failure != "" {
		return failf("status %d: %s", status, c.failure)
	}
	return failf("status %d: %s", status, strings.TrimSpace(string(text)))
}

// whole reads an answer that is not a stream. Its first byte counts as the first token, there being no
// earlier sign of one.
func (f *flight) whole(body io.Reader) error {
	var text []byte
	err := drain(body, func(p []byte) error {
		now := clock.MonoNs()
		f.update(func(rec *Record) {
			rec.LastNs = now
			if rec.FirstNs == 0 {
				rec.FirstNs = now
			}
		})
		if text = append(text, p...); len(text) > maxBody {
			return failf("answer longer than %d bytes", maxBody)
		}
		return nil
	})
	if err != nil {
		return err
	}
	c, err := parseChunk(text)
	if err != nil {
		return failf("unreadable answer: %v", err)
	}
	if c.failure != "" {
		return failf("%s", c.failure)
	}
	f.update(func(rec *Record) { rec.usage(c) })
	return nil
}

// stream reads a stream of server-sent events. Only [DONE] makes its end a clean one: a proxy that cuts
// a stream and ends the response properly must not pass.
func (f *flight) stream(body io.Reader) error {
	var p sseParser
	done := false
	err := drain(body, func(b []byte) error {
		now := clock.MonoNs()
		f.update(func(rec *Record) { rec.LastNs = now })
		return p.feed(b, func(e event) error {
			if done {
				return failf("an event after [DONE]")
			}
			var err error
			done, err = f.event(now, e)
			return err
		})
	})
	switch {
	case err != nil && !done:
		return err
	case errors.As(err, new(protocolError)):
		return err
	case !done:
		return failf("stream ended without [DONE]")
	}
	return nil
}

// event takes one event that was read at now into the record, and says whether it was [DONE].
func (f *flight) event(now int64, e event) (done bool, err error) {
	if string(e.data) == "[DONE]" {
		return true, nil
	}
	c, err := parseChunk(e.data)
	switch {
	case c.failure != "":
		return false, failf("error event: %s", c.failure)
	case string(e.name) == "error":
		return false, failf("error event: %s", e.data)
	case err != nil:
		return false, failf("unreadable event: %v", err)
	}
	f.update(func(rec *Record) {
		if c.token {
			f.token(rec, now)
		}
		rec.usage(c)
	})
	return false, nil
}

// token records a token chunk seen at now.
func (f *flight) token(r *Record, now int64) {
	began := f.lastTokenNs
	f.lastTokenNs = now
	r.Output++
	if r.FirstNs == 0 {
		r.FirstNs = now
		return
	}
	gap := now - began
	if gap > r.MaxGapNs {
		r.MaxGapNs, r.MaxGapEndNs = gap, now
	}
	if r.GapsNs == nil {
		r.GapsNs = make([]int64, 0, min(max(r.MaxTokens-1, 1), maxGaps))
	}
	if len(r.GapsNs) < maxGaps {
		r.GapsNs = append(r.GapsNs, gap)
	}
}

// usage records what the engine counted, where it did.
func (r *Record) usage(c chunk) {
	if !c.hasUsage {
		return
	}
	r.Output, r.Cached = c.completionTokens, c.cachedTokens
}

// drain hands every piece of body to take until the end of body or the first error.
func drain(body io.Reader, take func([]byte) error) error {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	for {
		n, err := body.Read(*buf)
		if n > 0 {
			if err := take((*buf)[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
