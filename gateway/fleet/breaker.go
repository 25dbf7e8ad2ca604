package fleet

import (
	"time"

	"fleetdrill/internal/contract"
)

const (
	breakerSlots    = 10                     // seconds of history, one slot each
	breakerFailures = 5                      // failures in the window that may open it
	breakerRate     = 0.5                    // and their share of all outcomes
	breakerOpenFor  = int64(5 * time.Second) // until one request is let through
)

// breaker is a circuit breaker over a sliding window: it opens when failures are many and frequent, and
// closes when one trial request succeeds. The zero value is closed and empty.
type breaker struct {
	opened int64 // mono ns, 0 = closed
	trial  bool  // a trial request is under way
	slots  [breakerSlots]struct {
		second   int64
		ok, fail int
	}
}

// allows says whether a request may pass.
func (b *breaker) allows(now int64) bool {
	return b.opened == 0 || now-b.opened >= breakerOpenFor && !b.trial
}

// take lets a request pass that allows approved, and says whether it is the trial.
func (b *breaker) take() bool {
	b.trial = b.opened > 0
	return b.trial
}

// name is the state for the routing state. An open breaker shows half-open once its trial is under way.
func (b *breaker) name() string {
	switch {
	case b.opened == 0:
		return contract.BreakerClosed
	case b.trial:
		return contract.BreakerHalfOpen
	}
	return contract.BreakerOpen
}

// verdicts of a request for the breaker.
type verdict uint8

const (
	neutral verdict = iota
	success
	failure
)

// report takes a request's verdict. Of an open breaker only the trial's counts: the others began before
// it opened.
func (b *breaker) report(now int64, v verdict, trial bool) {
	if b.opened > 0 {
		if !trial {
			return
		}
		b.trial = false
		switch v {
		case success:
			*b = breaker{}
		case failure:
			b.opened = now
		}
		return
	}
	if v == neutral {
		return
	}
	second := now / int64(time.Second)
	slot := &b.slots[second%breakerSlots]
	if slot.second != second {
		slot.second, slot.ok, slot.fail = second, 0, 0
	}
	if v == success {
		slot.ok++
		return
	}
	slot.fail++
	if b.tripped(second) {
		b.opened = now
	}
}

func (b *breaker) tripped(second int64) bool {
	ok, fail := 0, 0
	for _, s := range b.slots {
		if second-s.second < breakerSlots {
			ok += s.ok
			fail += s.fail
		}
	}
	return fail >= breakerFailures && float64(fail) >= breakerRate*float64(ok+fail)
}
