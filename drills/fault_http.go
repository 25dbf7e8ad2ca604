package drills

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"fleetdrill/drills/record"
	"fleetdrill/internal/clock"
	"fleetdrill/internal/lab"
)

// healthFault makes the health paths lie while everything else is served.
type healthFault struct {
	hookFault
	canary *canary
}

func (f *healthFault) prepare(ctx context.Context) error {
	f.canary = newCanary(f.worker, f.token)
	if _, err := f.canary.complete(ctx); err != nil {
		return err
	}
	return f.canary.healthy(ctx)
}

func (f *healthFault) confirm(ctx context.Context) (proof, error) {
	var e record.Evidence
	err := poll(ctx, hookPoll, "/health answers 200 at once", func() (lies bool, err error) {
		e, lies, err = f.lies(ctx, f.params.Duration("by"))
		return lies, err
	})
	if err != nil {
		return proof{}, err
	}
	served, err := f.canary.complete(ctx)
	if err != nil {
		return proof{}, fmt.Errorf("not only the health paths lie: %w", err)
	}
	return f.proven(ctx, e, served)
}

// lies asks for the health once and waits for the answer no longer than patience, 0 being for ever.
func (f *healthFault) lies(ctx context.Context, patience time.Duration) (record.Evidence, bool, error) {
	delay := f.params.Word("mode") == "delay"
	asking := ctx
	if delay && patience > 0 {
		var cancel context.CancelFunc
		asking, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	began := clock.MonoNs()
	status, err := f.canary.health(asking)
	took := time.Duration(clock.MonoNs() - began)
	switch {
	case ctx.Err() != nil:
		return record.Evidence{}, false, context.Cause(ctx)
	case delay && asking.Err() != nil:
		return seen(clock.MonoNs(), "/health of %s has no answer after %v", f.worker.ID, patience), true, nil
	case err != nil:
		return record.Evidence{}, false, err
	}
	return seen(clock.MonoNs(), "/health of %s answers %d after %.0f ms", f.worker.ID, status, took.Seconds()*1e3),
		!delay && status == http.StatusServiceUnavailable, nil
}

// check waits for a flapping engine's next turn, and for a late one no longer than is needed.
func (f *healthFault) check(ctx context.Context) ([]record.Evidence, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*f.params.Duration("by")+time.Second, errors.New("/health answers 200 at once"))
	defer cancel()
	var e record.Evidence
	err := poll(ctx, hookPoll, "the health does not lie any more", func() (lies bool, err error) {
		e, lies, err = f.lies(ctx, min(f.params.Duration("by"), canarySilence))
		return lies, err
	})
	return []record.Evidence{e}, err
}

// confirmHealed wants 200 at once, and for longer than a turn of an engine that flaps.
func (f *healthFault) confirmHealed(ctx context.Context) ([]record.Evidence, error) {
	by, well := f.params.Duration("by"), int64(0)
	err := poll(ctx, hookPoll, "the health paths do not recover", func() (bool, error) {
		_, lies, err := f.lies(ctx, by)
		now := clock.MonoNs()
		if lies || well == 0 {
			well = now
		}
		return !lies && (f.params.Word("mode") != "flap" || now-well > int64(by)), err
	})
	return []record.Evidence{seen(clock.MonoNs(), "/health of %s answers 200 at once", f.worker.ID)}, err
}

func (f *healthFault) close() { f.canary.closeIf() }

// listenerFault takes an engine's HTTP port away.
type listenerFault struct {
	hookFault
	addr string
	old  net.Conn // from before the fault
}

// prepare keeps a connection open that has been served.
func (f *listenerFault) prepare(ctx context.Context) (err error) {
	if f.addr, err = lab.HostPort(f.worker.Ready.HTTP); err != nil {
		return err
	}
	var d net.Dialer
	if f.old, err = d.DialContext(ctx, "tcp", f.addr); err != nil {
		return err
	}
	return askHealth(ctx, f.old, f.addr)
}

// askHealth sends GET /health on a connection and reads the answer, which leaves the connection open.
func askHealth(ctx context.Context, c net.Conn, host string) error {
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := fmt.Fprintf(c, "GET /health HTTP/1.1\r\nHost: %s\r\n\r\n", host); err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// try opens a connection of the lab's own and says what becomes of it, in the words of the fault's mode, or
// "served".
func (f *listenerFault) try(ctx context.Context) (string, error) {
	trial, cancel := context.WithTimeout(ctx, canarySilence)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(trial, "tcp", f.addr)
	if err == nil {
		defer c.Close()
		err = askHealth(trial, c, f.addr)
	}
	switch {
	case err == nil:
		return "served", nil
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	}
	return refusal(err, trial.Err() != nil), nil
}

// refusal names how a connection failed as the modes of a listener fault do; silent says that time was up.
func refusal(err error, silent bool) string {
	switch {
	case silent:
		return "blackhole"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "closed"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "reset"
	}
	return err.Error()
}

func (f *listenerFault) confirm(ctx context.Context) (proof, error) {
	began := clock.MonoNs()
	mode := f.params.Word("mode")
	got, err := f.try(ctx)
	if err != nil {
		return proof{}, err
	}
	if got != mode {
		return proof{}, fmt.Errorf("a connection of the lab's own to %s is %s, want %s", f.addr, got, mode)
	}
	e := seen(clock.MonoNs(), "a connection of the lab's own to %s: %s", f.addr, got)
	old, err := f.tryOld(ctx)
	if err != nil {
		return proof{}, err
	}
	p, err := f.proven(ctx, e, old)
	p.effectiveHi = began
	return p, err
}

// tryOld looks what has become of the connection from before.
func (f *listenerFault) tryOld(ctx context.Context) (record.Evidence, error) {
	want := f.params.Word("existing")
	got := "keep"
	if err := askHealth(ctx, f.old, f.addr); err != nil {
		got = "close"
	}
	if got != want {
		return record.Evidence{}, fmt.Errorf("the connection to %s from before: %s, want %s", f.addr, got, want)
	}
	return seen(clock.MonoNs(), "the connection to %s from before: %s", f.addr, got), nil
}

func (f *listenerFault) check(ctx context.Context) ([]record.Evidence, error) {
	got, err := f.try(ctx)
	if err == nil && got != f.params.Word("mode") {
		err = fmt.Errorf("a connection of the lab's own to %s is %s: not %s to the end", f.addr, got, f.params.Word("mode"))
	}
	return []record.Evidence{seen(clock.MonoNs(), "a connection of the lab's own to %s: still %s", f.addr, got)}, err
}

func (f *listenerFault) confirmHealed(ctx context.Context) ([]record.Evidence, error) {
	err := poll(ctx, refusedPoll, "the port is not back", func() (bool, error) {
		got, err := f.try(ctx)
		return got == "served", err
	})
	return []record.Evidence{seen(clock.MonoNs(), "a connection of the lab's own to %s is served", f.addr)}, err
}

func (f *listenerFault) close() {
	if f.old != nil {
		f.old.Close()
	}
}

// errorsFault answers requests with an error status before the first byte.
type errorsFault struct {
	hookFault
	canary *canary
}

func (f *errorsFault) prepare(ctx context.Context) error {
	f.canary = newCanary(f.worker, f.token)
	_, err := f.canary.complete(ctx)
	return err
}

func (f *errorsFault) confirm(ctx context.Context) (p proof, err error) {
	e, err := f.await(ctx, int(f.params.Whole("status")))
	if err != nil {
		return p, err
	}
	p, err = f.proven(ctx, e)
	if err == nil && f.selfHeals {
		p.effectiveHi = e.MonoNs
		p.healed, err = f.over(ctx)
	}
	return p, err
}

// over waits for the hook's count to be reached and a completion to be served.
func (f *errorsFault) over(ctx context.Context) (*record.Interval, error) {
	if err := f.hook.awaitDone(ctx, func() error { _, err := f.canary.status(ctx); return err }); err != nil {
		return nil, err
	}
	e, err := f.await(ctx, http.StatusOK)
	return &record.Interval{Lo: e.MonoNs, Hi: e.MonoNs}, err
}

// await sends completions until one gets a status.
func (f *errorsFault) await(ctx context.Context, want int) (e record.Evidence, err error) {
	err = poll(ctx, hookPoll, fmt.Sprintf("no completion of the lab's own gets status %d", want), func() (bool, error) {
		got, err := f.canary.status(ctx)
		e = seen(clock.MonoNs(), "a completion of the lab's own, straight to %s, got status %d", f.worker.ID, got)
		return got == want, err
	})
	return e, err
}

func (f *errorsFault) check(ctx context.Context) ([]record.Evidence, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, healedWithin, fmt.Errorf("not within %v", healedWithin))
	defer cancel()
	e, err := f.await(ctx, int(f.params.Whole("status")))
	return []record.Evidence{e}, err
}

func (f *errorsFault) confirmHealed(ctx context.Context) ([]record.Evidence, error) {
	e, err := f.await(ctx, http.StatusOK)
	return []record.Evidence{e}, err
}

func (f *errorsFault) close() { f.canary.closeIf() }

// cutMore is how many tokens longer than the cut the lab's own streams are.
const cutMore = 16

// cutFault ends streams in the middle.
type cutFault struct {
	hookFault
	canary *canary
}

// prepare sees a stream end whole, or a cut one would prove nothing. On a busy machine the first may be given
// up between two tokens.
func (f *cutFault) prepare(ctx context.Context) error {
	f.canary = newCanary(f.worker, f.token)
	if e, err := f.await(ctx, ""); err != nil {
		return fmt.Errorf("before the fault: %w (%s)", err, e.What)
	}
	return nil
}

func (f *cutFault) send(ctx context.Context) streamEnd {
	return f.canary.stream(ctx, int(f.params.Whole("after_tokens"))+cutMore, canarySilence)
}

func (f *cutFault) confirm(ctx context.Context) (p proof, err error) {
	e, err := f.await(ctx, f.params.Word("how"))
	if err != nil {
		return p, err
	}
	p, err = f.proven(ctx, e)
	if err == nil && f.selfHeals {
		p.effectiveHi = e.MonoNs
		if err = f.hook.awaitDone(ctx, func() error { f.send(ctx); return nil }); err == nil {
			e, err = f.await(ctx, "")
			p.healed = &record.Interval{Lo: e.MonoNs, Hi: e.MonoNs}
		}
	}
	return p, err
}

// await sends streams until one ends as wanted, "" being whole. One that is cut has at most as many tokens
// as it was left; several may come in one piece.
func (f *cutFault) await(ctx context.Context, how string) (e record.Evidence, err error) {
	what := "whole"
	if how != "" {
		what = how
	}
	err = poll(ctx, hookPoll, "no stream of the lab's own ends "+what, func() (bool, error) {
		end := f.send(ctx)
		e = seen(clock.MonoNs(), "a stream of the lab's own, straight to %s: %v", f.worker.ID, end)
		return end.how == how && end.whole == (how == "") && (end.whole || end.tokens == int(f.params.Whole("after_tokens"))), nil
	})
	return e, err
}

func (f *cutFault) check(ctx context.Context) ([]record.Evidence, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, healedWithin, fmt.Errorf("not within %v", healedWithin))
	defer cancel()
	e, err := f.await(ctx, f.params.Word("how"))
	return []record.Evidence{e}, err
}

func (f *cutFault) confirmHealed(ctx context.Context) ([]record.Evidence, error) {
	e, err := f.await(ctx, "")
	return []record.Evidence{e}, err
}

func (f *cutFault) close() { f.canary.closeIf() }

const (
	// loadStreams are the streams that the lab opens to give an engine something to tell of.
	loadStreams = 8
	// loadApart is by how much truth and a frozen gauge must differ: other traffic never moves so far between
	// two readings.
	loadApart = 4
	// loadTokens is their length: they are hung up long before.
	loadTokens = 4096
)

// loadFault makes an engine lie about its load.
type loadFault struct {
	hookFault
	canary *canary
	frozen float64
}

func (f *loadFault) prepare(ctx context.Context) error {
	f.canary = newCanary(f.worker, f.token)
	told, err := f.canary.running(ctx)
	if err == nil && !told.known {
		err = fmt.Errorf("the metrics of %s do not tell how many requests it runs", f.worker.ID)
	}
	return err
}

// inject looks once right after the arming: that is what a frozen gauge shows.
func (f *loadFault) inject(ctx context.Context) error {
	if err := f.hookFault.inject(ctx); err != nil {
		return err
	}
	told, err := f.canary.running(ctx)
	f.frozen = told.running
	return err
}

// gauge is what an engine tells of its running requests.
type gauge struct {
	running float64
	known   bool
}

// stale says whether a gauge lies in a mode while truth counts so many, before and after it was read.
func (g gauge) stale(mode string, frozen, before, after float64) bool {
	switch mode {
	case "absent":
		return !g.known
	case "zero":
		return g.known && g.running == 0 && min(before, after) >= loadApart
	}
	return g.known && g.running == frozen && (min(before, after) >= frozen+loadApart || max(before, after) <= frozen-loadApart)
}

// honest says whether it tells what truth counts.
func (g gauge) honest(before, after float64) bool {
	return g.known && min(before, after) >= loadApart && g.running >= min(before, after)-1 && g.running <= max(before, after)+1
}

// look opens streams until the gauge is as wanted.
func (f *loadFault) look(ctx context.Context, what string, want func(g gauge, before, after float64) bool) (e record.Evidence, err error) {
	streams, cancel := context.WithCancel(ctx)
	defer cancel()
	for range loadStreams {
		f.canary.keep(streams, loadTokens)
	}
	err = poll(ctx, hookPoll, what, func() (bool, error) {
		before, err := f.running(ctx)
		if err != nil {
			return false, err
		}
		told, err := f.canary.running(ctx)
		if err != nil {
			return false, err
		}
		after, err := f.running(ctx)
		e = seen(clock.MonoNs(), "%s runs %.0f requests and tells %s", f.worker.ID, after, told)
		return want(told, before, after), err
	})
	return e, err
}

// String is a number, or that there is none.
func (g gauge) String() string {
	if !g.known {
		return "none"
	}
	return fmt.Sprintf("%.0f", g.running)
}

func (f *loadFault) running(ctx context.Context) (n float64, err error) {
	t, err := f.worker.Admin.Truth(ctx)
	for _, r := range t.Ranks {
		n += float64(r.Running)
	}
	return n, err
}

func (f *loadFault) stale(g gauge, before, after float64) bool {
	return g.stale(f.params.Word("mode"), f.frozen, before, after)
}

func (f *loadFault) confirm(ctx context.Context) (proof, error) {
	armed := clock.MonoNs()
	e, err := f.look(ctx, "the engine tells its load as it is", f.stale)
	if err != nil {
		return proof{}, err
	}
	p, err := f.proven(ctx, e)
	p.effectiveHi = armed
	return p, err
}

func (f *loadFault) check(ctx context.Context) ([]record.Evidence, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, healedWithin, fmt.Errorf("not within %v", healedWithin))
	defer cancel()
	e, err := f.look(ctx, "the engine tells its load as it is", f.stale)
	return []record.Evidence{e}, err
}

func (f *loadFault) confirmHealed(ctx context.Context) ([]record.Evidence, error) {
	e, err := f.look(ctx, "the engine does not tell its load as it is", gauge.honest)
	return []record.Evidence{e}, err
}

func (f *loadFault) close() { f.canary.closeIf() }

// readGauge finds the gauge of running requests in a text of metrics, either engine's.
func readGauge(text string) (g gauge) {
	for line := range strings.Lines(text) {
		name, rest, _ := strings.Cut(line, "{")
		if name != "vllm:num_requests_running" && name != "sglang:num_running_reqs" {
			continue
		}
		var v float64
		if _, err := fmt.Sscan(rest[strings.LastIndexByte(rest, ' ')+1:], &v); err == nil {
			g = gauge{g.running + v, true}
		}
	}
	return g
}
