package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"fleetdrill/internal/clock"
)

// maxError bounds the error text of a record, in bytes.
const maxError = 256

// Why a request's context ended, apart from errCut.
var (
	errAborted = errors.New("the client hung up on purpose")
	errTimeout = errors.New("no end within the request timeout")
)

// protocolError is a failure that the answer itself told or showed: it stands whatever happened to the
// connection afterwards.
type protocolError struct{ what string }

func (e protocolError) Error() string { return e.what }

func failf(format string, args ...any) error { return protocolError{fmt.Sprintf(format, args...)} }

// fly sends one request and follows its answer to the end, whatever the end is.
func (r *Run) fly(f *flight, req Request) {
	ctx, cancel := context.WithCancelCause(r.ctx)
	defer cancel(nil)
	if after, ok := r.o.Abort.draw(f.rec.N); ok {
		defer time.AfterFunc(after, func() { cancel(errAborted) }).Stop()
	}
	if r.o.Timeout > 0 {
		defer time.AfterFunc(r.o.Timeout, func() { cancel(errTimeout) }).Stop()
	}
	err := r.exchange(ctx, f, req)
	now := clock.MonoNs()
	outcome, text := judge(err, context.Cause(ctx))
	f.update(func(rec *Record) {
		rec.Outcome, rec.Error = outcome, text
		if outcome != OutcomeOpen {
			rec.EndNs = now
		}
	})
}

// judge turns how an exchange ended, and why its context ended if it did, into an outcome.
func judge(err, cause error) (outcome, text string) {
	var told protocolError
	switch {
	case err == nil:
		return OutcomeOK, ""
	case errors.As(err, &told) || cause == nil:
		return OutcomeFailed, bound(err.Error())
	case errors.Is(cause, errAborted):
		return OutcomeAborted, ""
	case errors.Is(cause, errTimeout):
		return OutcomeFailed, errTimeout.Error()
	default:
		return OutcomeOpen, ""
	}
}

func bound(s string) string {
	if len(s) > maxError {
		return s[:maxError]
	}
	return s
}

// exchange sends req and reads its answer; nil means a complete and clean one.
func (r *Run) exchange(ctx context.Context, f *flight, req Request) error {
	hr, err := r.build(ctx, req)
	if err != nil {
		return failf("building the request: %v", err)
	}
	if ctx.Err() != nil {
		return ctx.Err() // due but cut before it left
	}
	f.update(func(rec *Record) { rec.SentNs = clock.MonoNs() })
	resp, err := r.client.Do(hr)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	f.head(clock.MonoNs(), resp)
	return r.read(f, resp)
}

func (r *Run) build(ctx context.Context, req Request) (*http.Request, error) {
	path := req.Path
	if path == "" {
		path = "/v1/completions"
	}
	hr, err := http.NewRequestWithContext(ctx, http.MethodPost, r.o.URL+path, bytes.NewReader(req.Body))
	if err != nil {
		return nil, err
	}
	hr.Header.Set("Content-Type", "application/json")
	hr.Header.Set("X-Request-Id", req.ID)
	for k, v := range req.Headers {
		hr.Header.Set(k, v)
	}
	return hr, nil
}
