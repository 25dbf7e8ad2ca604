package load

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"fleetdrill/internal/clock"
)

// readAhead is how many bodies are prepared before their instant: a trace puts dozens of long prompts on
// one stamp, and building them one by one would show up as send lag.
const readAhead = 64

// errCut ends the requests that are still open when a load is cancelled or its drain time is over.
var errCut = errors.New("the load was cut")

// Run is a load in progress. Its methods are safe for concurrent use.
type Run struct {
	o       Options
	startNs int64
	client  *http.Client
	book    book
	flights sync.WaitGroup
	refused atomic.Int64

	ctx    context.Context
	cancel context.CancelCauseFunc
	// stopNs is the instant of Stop; stopped is closed after it is set, so whoever saw the channel closed
	// reads the instant.
	stopNs   atomic.Int64
	stopOnce sync.Once
	stopped  chan struct{}
	done     chan struct{}
}

// Start begins sending. Cancelling ctx is like Cancel. The caller must Wait.
func Start(ctx context.Context, o Options) *Run {
	o = o.withDefaults()
	o.URL = strings.TrimRight(o.URL, "/")
	r := &Run{o: o, startNs: o.StartNs, client: o.Client, stopped: make(chan struct{}), done: make(chan struct{})}
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	if r.startNs == 0 {
		r.startNs = clock.MonoNs()
	}
	if r.client == nil {
		r.client = NewClient(o.MaxOpen)
	}
	go r.run()
	return r
}

// StartNs is the CLOCK_MONOTONIC instant of offset 0.
func (r *Run) StartNs() int64 { return r.startNs }

// Stop schedules nothing later than now; what was due is still sent, and open requests may finish within
// the drain timeout. It does not wait.
func (r *Run) Stop() {
	r.stopOnce.Do(func() {
		r.stopNs.Store(clock.MonoNs())
		close(r.stopped)
	})
}

// Cancel stops the load and cuts its open requests at once; their records stay open. It does not wait.
func (r *Run) Cancel() {
	r.Stop()
	r.cancel(errCut)
}

// Done is closed when every request has ended and every goroutine of the run is gone.
func (r *Run) Done() <-chan struct{} { return r.done }

// Wait blocks until Done and returns every record in scheduled order.
func (r *Run) Wait() []Record {
	<-r.done
	return r.Snapshot()
}

// Snapshot is every record so far in scheduled order, open ones as they stand. It copies all of them:
// a sampler of a long load should use Since.
func (r *Run) Snapshot() []Record { return r.book.snapshot() }

// Since returns the records that settled after the first n settled ones, in the order they settled,
// then the open ones in scheduled order, and the n for the next call. Whoever keeps records by N and
// overwrites them has the whole load at a cost of what changed. Start with n = 0.
func (r *Run) Since(n int) (changed []Record, next int) { return r.book.since(n) }

// Refused counts the requests that were not sent because MaxOpen were open.
func (r *Run) Refused() int { return int(r.refused.Load()) }

// run is the owner of every goroutine of the load.
func (r *Run) run() {
	defer close(r.done)
	defer r.cancel(errCut)
	r.schedule()
	drain := time.AfterFunc(r.o.DrainTimeout, func() { r.cancel(errCut) })
	defer drain.Stop()
	r.flights.Wait()
	if r.o.Client == nil {
		r.client.CloseIdleConnections()
	}
}
