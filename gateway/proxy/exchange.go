package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strconv"
	"strings"
	"time"

	"fleetdrill/gateway/fleet"
	"fleetdrill/gateway/policy"
	"fleetdrill/internal/clock"
)

// Headers that the gateway adds to an answer, and the one that pins a rank.
const (
	headerWorker    = "X-Routed-Worker"
	headerRank      = "X-Routed-Rank"
	headerPredicted = "X-Predicted-Cached-Tokens"
	headerAttempts  = "X-Attempts"
	headerPinRank   = "X-Data-Parallel-Rank"
)

// clientStall is how long one write to a client may take before the client counts as gone.
const clientStall = 60 * time.Second

// exchange is one client request over all its attempts.
type exchange struct {
	p        *Proxy
	w        http.ResponseWriter
	r        *http.Request
	control  *http.ResponseController
	body     []byte
	in       prompt
	arrived  int64
	attempts int
	tried    []*fleet.Worker
	begun    bool  // bytes have reached the client
	events   bool  // the answer is a stream of server-sent events
	tail     tail  // the last bytes passed on
	deadline int64 // mono ns of the write deadline now set
	last     error // what the client is told when no worker is left to try
}

// serve carries a request to a worker, and to another one while that is allowed.
func (p *Proxy) serve(w http.ResponseWriter, r *http.Request, body []byte, in prompt) {
	x := &exchange{p: p, w: w, r: r, control: http.NewResponseController(w), body: body, in: in,
		arrived: clock.MonoNs(), last: noWorker()}
	p.countRequest()
	for x.attempt() {
		p.retries.Add(1)
	}
}

// attempt makes one attempt and says whether to make another. It panics with http.ErrAbortHandler to
// break the client's connection.
func (x *exchange) attempt() (again bool) {
	ctx, cancel := context.WithCancelCause(x.r.Context())
	defer cancel(nil)
	guard, transport, err := x.place(cancel)
	if err != nil {
		x.p.refuse(x.w, x.last)
		return false
	}
	x.attempts++
	a := &attempt{exchange: x, ctx: ctx, cancel: cancel, guard: guard}
	// A panic below is charged to nobody; every other end has reported itself by then.
	defer x.p.opts.Fleet.End(guard, fleet.Declined)
	failure, err := a.run(transport)
	x.p.opts.Fleet.End(guard, a.outcome(failure, err))
	return x.conclude(a, failure, err)
}

// conclude answers, retries or breaks off, once the guard is back.
func (x *exchange) conclude(a *attempt, f failure, err error) (again bool) {
	defer a.close()
	if f == none {
		a.account()
		return false
	}
	x.p.log.Info("attempt failed", "worker", a.guard.Worker.ID, "attempt", x.attempts, "begun", x.begun, "err", err)
	x.tried = append(x.tried, a.guard.Worker)
	if f != refused && f != vetoed {
		x.last = f.explain(a.guard.Worker.ID, err)
	}
	if mayRetry(f, x.begun, x.attempts, x.p.opts.Retries, x.p.draw) {
		return true
	}
	x.p.metrics.fail(f)
	switch {
	case f == clientGone:
		panic(http.ErrAbortHandler)
	case x.begun:
		x.breakOff(f.explain(a.guard.Worker.ID, err))
	case f == status:
		// Nobody else may try: the engine's own answer says more than ours could.
		if f, err = a.deliver(); f != none && x.begun {
			x.breakOff(f.explain(a.guard.Worker.ID, err))
		} else if f != none {
			x.p.refuse(x.w, f.explain(a.guard.Worker.ID, err))
		}
	default:
		x.routed(a.guard)
		x.p.refuse(x.w, f.explain(a.guard.Worker.ID, err))
	}
	return false
}

// place looks the prompt up and takes a guard.
func (x *exchange) place(cancel context.CancelCauseFunc) (*fleet.Request, http.RoundTripper, error) {
	start := time.Now()
	ask := fleet.Ask{Tokens: len(x.in.ids), Streamed: x.in.stream, Tried: x.tried, End: cancel}
	s := x.p.lookup(x.in)
	if s != nil {
		if ask.Score = s.Of; s.oneAdapter() {
			ask.Deepest = s.Deepest
		}
	}
	guard, transport, err := x.p.opts.Fleet.Place(ask)
	x.p.metrics.decision.Observe(time.Since(start).Seconds())
	if err == nil && s != nil && len(x.tried) == 0 {
		switch {
		case guard.Overlap > 0 || guard.Branch == policy.BranchDivert:
			x.p.hits.Add(1)
		case !guard.Held:
			x.p.misses.Add(1)
		}
	}
	return guard, transport, err
}

// routed sets the headers that say where the request went.
func (x *exchange) routed(guard *fleet.Request) {
	h := x.w.Header()
	h.Set(headerWorker, guard.Worker.ID)
	h.Set(headerRank, strconv.Itoa(guard.Rank))
	h.Set(headerPredicted, strconv.Itoa(Predicted(guard.Overlap, len(x.in.ids), guard.Worker.Spec.KVBlockSize)))
	h.Set(headerAttempts, strconv.Itoa(x.attempts))
}

// breakOff ends an answer that cannot be completed: an error event where the format has one, then a cut
// connection, which no client takes for the end.
func (x *exchange) breakOff(e *apiError) {
	if x.events {
		if !x.tail.ends("\n\n") {
			_, _ = x.w.Write([]byte("\n\n"))
		}
		_, _ = x.w.Write(e.event())
		_ = x.control.Flush()
	}
	panic(http.ErrAbortHandler)
}

// attempt is one try on one worker.
type attempt struct {
	*exchange
	ctx    context.Context
	cancel context.CancelCauseFunc
	guard  *fleet.Request
	resp   *http.Response
	timer  *time.Timer // runs while the worker is expected to be heard, and cancels with cause
	cause  error
	// accounted is set once the answer is whole and counted as such: nothing makes it a failure any more.
	accounted bool
}

// outcome is what the worker is charged with: an answer is none of its failures, but a refusal of the
// request (4xx, 429) proves nothing either.
func (a *attempt) outcome(f failure, err error) fleet.Outcome {
	if f == none && a.resp.StatusCode >= http.StatusBadRequest {
		return fleet.Declined
	}
	return f.outcome(err)
}

// run sends the request and passes the answer on. The error says more about the failure.
func (a *attempt) run(transport http.RoundTripper) (failure, error) {
	req, err := a.request()
	if err != nil {
		return broken, err
	}
	a.expect(a.p.opts.TTFTTimeout, errTTFT)
	a.resp, err = transport.RoundTrip(req)
	if err != nil {
		return a.failed(err)
	}
	if failedStatus(a.resp.StatusCode) {
		return status, errors.New("the worker answered " + a.resp.Status)
	}
	return a.deliver()
}

// request is the request to the worker: same method, path, query and body bytes.
func (a *attempt) request() (*http.Request, error) {
	trace := &httptrace.ClientTrace{WroteRequest: func(info httptrace.WroteRequestInfo) {
		if info.Err == nil {
			a.p.opts.Fleet.Sent(a.guard)
		}
	}}
	var body io.Reader
	if a.body != nil {
		body = bytes.NewReader(a.body)
	}
	url := a.guard.Worker.URL + a.r.URL.RequestURI()
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(a.ctx, trace), a.r.Method, url, body)
	if err != nil {
		return nil, err
	}
	copyHeader(req.Header, a.r.Header)
	// A compressed answer could not be checked for its end, and engines have nothing to gain from it.
	req.Header.Del("Accept-Encoding")
	if len(a.guard.Worker.Holders) > 1 {
		req.Header.Set(headerPinRank, strconv.Itoa(a.guard.Rank))
	}
	return req, nil
}

// expect gives the worker time d from now on; 0 = for ever.
func (a *attempt) expect(d time.Duration, cause error) {
	switch {
	case d <= 0:
	case a.timer == nil || a.cause != cause:
		a.heard()
		a.cause = cause
		a.timer = time.AfterFunc(d, func() { a.cancel(cause) })
	default:
		a.timer.Reset(d)
	}
}

// heard stops the time that expect started.
func (a *attempt) heard() {
	if a.timer != nil {
		a.timer.Stop()
	}
}

// failed sorts an error of the exchange with the worker.
func (a *attempt) failed(err error) (failure, error) {
	cause := context.Cause(a.ctx)
	f := classify(err, cause, a.r.Context())
	if f == vetoed || f == timedOut && cause != nil {
		err = cause
	}
	return f, err
}

func (a *attempt) close() {
	a.heard()
	if a.resp != nil {
		// Cancelled first: closing an unread body would otherwise wait for the rest of it.
		a.cancel(nil)
		_ = a.resp.Body.Close()
	}
}

// hopByHop are the headers that belong to one connection.
var hopByHop = map[string]bool{"Connection": true, "Keep-Alive": true, "Proxy-Connection": true, "Te": true, "Trailer": true,
	"Transfer-Encoding": true, "Upgrade": true, "Expect": true, "Proxy-Authenticate": true, "Proxy-Authorization": true}

// copyHeader copies all but the hop-by-hop headers, those that Connection names included.
func copyHeader(dst, src http.Header) {
	named := src["Connection"]
	for key, values := range src {
		if !hopByHop[key] && !isNamed(named, key) {
			dst[key] = values
		}
	}
}

func isNamed(lists []string, key string) bool {
	for _, list := range lists {
		for name := range strings.SplitSeq(list, ",") {
			if textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(name)) == key {
				return true
			}
		}
	}
	return false
}
