package drills

import (
	"context"
	"fmt"
	"sync"
	"time"

	"fleetdrill/drills/record"
	"fleetdrill/drills/scenario"
	"fleetdrill/drills/synth"
	"fleetdrill/internal/clock"
	"fleetdrill/replayer/load"
)

// loadAhead is how far in the future a load begins, so that its first request is on time.
const loadAhead = 50 * time.Millisecond

// loads are the loads of a run: each runs from its start mark to its stop mark, beside the timeline.
type loads struct {
	marks   *marks
	waits   sync.WaitGroup // goroutines that wait for a mark
	cancel  context.CancelFunc
	entries []*loadEntry // in the scenario's order
}

// loadEntry is one load, started or not.
type loadEntry struct {
	l      scenario.Load
	url    string
	source load.Source

	mu  sync.Mutex // guards run
	run *load.Run  // nil before the start
}

// startLoads starts what starts with the run and has the rest wait for its marks. It always returns
// loads, to be ended.
func (r *run) startLoads(ctx context.Context) (*loads, error) {
	waiting, cancel := context.WithCancel(ctx)
	ls := &loads{marks: r.marks, cancel: cancel}
	start := record.Interval{Lo: clock.MonoNs() + int64(loadAhead)}
	start.Hi = start.Lo
	for i, l := range r.s.Loads {
		source, err := synth.New(synthSpec(r.s, l, r.plan.Loads[i].Seed))
		if err != nil {
			return ls, fmt.Errorf("planning load %s: %w", l.ID, err)
		}
		e := &loadEntry{l: l, url: r.gateway.URL, source: source}
		if w := r.fleet.ByID(l.To); w != nil {
			// Its own port, not the link proxy: such a load goes on while the gateway's way is cut.
			e.url = w.Ready.HTTP
		}
		ls.entries = append(ls.entries, e)
		if l.Start.IsZero() {
			e.start(ctx, r.marks, start)
		}
		if !l.Start.IsZero() || !l.Stop.IsZero() {
			// The load itself belongs to ctx: requests that are open outlast the waiting for marks.
			ls.waits.Go(func() { r.attend(waiting, ctx, e) })
		}
	}
	return ls, nil
}

// attend starts and stops a load at its marks. A mark that does not come, or a gateway that ends, is for
// the timeline to find.
func (r *run) attend(waiting, ctx context.Context, e *loadEntry) {
	if !e.l.Start.IsZero() {
		at, err := r.awaitMark(waiting, e.l.Start)
		if err == nil {
			err = r.sleepUntil(waiting, at.Hi-int64(loadAhead))
		}
		if err != nil {
			return
		}
		e.start(ctx, r.marks, record.Interval{Lo: at.Lo, Hi: max(at.Hi, clock.MonoNs()+int64(time.Millisecond))})
	}
	if e.l.Stop.IsZero() {
		return
	}
	at, err := r.awaitMark(waiting, e.l.Stop)
	if err == nil {
		err = r.sleepUntil(waiting, at.Hi)
	}
	if err == nil {
		e.stop(r.marks)
	}
}

// start begins sending at the later end of an interval, which becomes the load's start mark.
func (e *loadEntry) start(ctx context.Context, m *marks, at record.Interval) {
	e.mu.Lock()
	e.run = load.Start(ctx, load.Options{URL: e.url, Load: e.l.ID, StartNs: at.Hi, Requests: e.source, DrainTimeout: drainTimeout})
	e.mu.Unlock()
	m.instant(e.l.ID+".start", at.Hi)
}

// stop ends the sending; a load that never began has no end.
func (e *loadEntry) stop(m *marks) {
	if run := e.started(); run != nil {
		run.Stop()
		m.instant(e.l.ID+".end", clock.MonoNs())
	}
}

func (e *loadEntry) started() *load.Run {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.run
}

// end stops the loads and waits for their open requests; cut ends those at once.
func (ls *loads) end(cut bool) {
	ls.cancel()
	ls.waits.Wait()
	for _, e := range ls.entries {
		e.stop(ls.marks)
		if run := e.started(); run != nil && cut {
			run.Cancel()
		}
	}
	for _, e := range ls.entries {
		if run := e.started(); run != nil {
			run.Wait()
		}
	}
}

// records is every request so far. One that went straight to an engine was served by that engine,
// although no gateway's header says so.
func (ls *loads) records() []load.Record {
	var out []load.Record
	for _, e := range ls.entries {
		run := e.started()
		if run == nil {
			continue
		}
		first := len(out)
		out = append(out, run.Snapshot()...)
		if e.l.To == gatewayTarget {
			continue
		}
		for i := first; i < len(out); i++ {
			out[i].Worker = e.l.To
		}
	}
	return out
}

// gatewayTarget is the destination of a load that goes through the gateway.
const gatewayTarget = "gateway"
