package load

import (
	"fmt"
	"sync"

	"fleetdrill/internal/clock"
)

// schedule hands over every request at its instant and returns when there are no more or Stop came.
func (r *Run) schedule() {
	quit := make(chan struct{})
	prepared := make(chan Request, readAhead)
	var feeder sync.WaitGroup
	feeder.Go(func() { r.prepare(prepared, quit) })
	defer feeder.Wait()
	defer close(quit)
	if r.o.Concurrency > 0 {
		r.closedLoop(prepared)
		return
	}
	for req := range prepared {
		at := r.startNs + req.OffsetNs
		if !r.waitUntil(at) {
			return
		}
		r.launch(req, at, nil)
	}
}

// prepare fills the channel ahead of the scheduler until the source ends or quit closes.
func (r *Run) prepare(prepared chan<- Request, quit <-chan struct{}) {
	defer close(prepared)
	for {
		req, ok := r.o.Requests.Next()
		if !ok {
			return
		}
		select {
		case prepared <- req:
		case <-quit:
			return
		}
	}
}

// waitUntil sleeps until the instant at; false means that the load stopped before it.
func (r *Run) waitUntil(at int64) bool {
	sleepUntil(at, r.stopped, r.ctx.Done())
	if r.ctx.Err() != nil {
		r.Stop()
	}
	select {
	case <-r.stopped:
		// A scheduler that ran late still sends what was due: its lag must show, not vanish.
		return at <= r.stopNs.Load()
	default:
		return true
	}
}

// closedLoop keeps Concurrency requests open.
func (r *Run) closedLoop(prepared <-chan Request) {
	slots := make(chan struct{}, r.o.Concurrency)
	for req := range prepared {
		select {
		case slots <- struct{}{}:
		case <-r.stopped:
			return
		case <-r.ctx.Done():
			return
		}
		r.launch(req, clock.MonoNs(), func() { <-slots })
	}
}

// launch opens the record of req and starts its goroutine, or refuses it when too many are open.
func (r *Run) launch(req Request, at int64, ended func()) {
	rec := Record{
		Load: r.o.Load, ID: req.ID, ScheduledNs: at, Predicted: -1,
		PromptTokens: req.PromptTokens, MaxTokens: req.MaxTokens, NewPrefix: req.NewPrefix, Head: req.Head,
		Outcome: OutcomeOpen,
	}
	f, open := r.book.add(rec)
	end := func() {
		r.book.settle(f)
		if ended != nil {
			ended()
		}
	}
	if open > r.o.MaxOpen {
		r.refuse(f)
		end()
		return
	}
	r.flights.Go(func() {
		defer end()
		r.fly(f, req)
	})
}

// refuse records a request that was not sent.
func (r *Run) refuse(f *flight) {
	r.refused.Add(1)
	f.update(func(rec *Record) {
		rec.EndNs, rec.Outcome = clock.MonoNs(), OutcomeFailed
		rec.Error = fmt.Sprintf("not sent: %d requests were open", r.o.MaxOpen)
	})
}
