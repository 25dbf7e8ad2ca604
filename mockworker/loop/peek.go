package loop

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"fleetdrill/mockworker/engine"
)

// A question that Ask leaves waits for the end of the running step, which a long prefill makes last for
// seconds. But the loop sleeps through nearly all of a step, and the engine stands still meanwhile: it is as
// it will be at the step's end, only that nothing of it is published yet. Peek asks there and then, and is
// told what is not published.

// peeks are the questions that wait, and what the loop needs to answer them.
type peeks struct {
	came chan struct{} // at most one token: "look"

	mu   sync.Mutex // guards left
	left []peek

	// pending are the events of the step that the loop sleeps through, for the loop goroutine.
	pending []engine.Event
	// outputs are those of that step.
	outputs []engine.Output
}

type peek struct {
	fn   func(e engine.Core, pending []engine.Event)
	done chan struct{}
}

// LeavePeek leaves a question: fn runs with the engine between two steps, as Leave's does, or within one.
// pending are then the events of that step, which the engine has behind it and the publisher before it. asked
// and ok are those of Leave.
func (l *Loop) LeavePeek(fn func(e engine.Core, pending []engine.Event)) (asked <-chan struct{}, ok bool) {
	if l.ctx.Err() != nil {
		return nil, false
	}
	p := peek{fn: fn, done: make(chan struct{})}
	l.peeks.mu.Lock()
	l.peeks.left = append(l.peeks.left, p)
	l.peeks.mu.Unlock()
	select {
	case l.peeks.came <- struct{}{}:
	default:
	}
	l.Wake() // it may be idle or frozen
	return p.done, true
}

// Peek leaves a question and waits. It fails when ctx ends first or the loop is closed; fn may still run
// then.
func (l *Loop) Peek(ctx context.Context, fn func(e engine.Core, pending []engine.Event)) error {
	asked, ok := l.LeavePeek(fn)
	if !ok {
		return ErrClosed
	}
	select {
	case <-asked:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the engine: %w", ctx.Err())
	case <-l.done:
		return ErrClosed
	}
}

// Standing is the engine's load as the fn of a peek or of a question may tell it. Within a step that has events or
// ends requests it is that of the step boundary before: nobody has been told of them yet.
func (l *Loop) Standing() engine.Load {
	ends := func(o engine.Output) bool { return o.Finish != "" }
	if len(l.peeks.pending) > 0 || slices.ContainsFunc(l.peeks.outputs, ends) {
		return l.Snapshot().Load
	}
	return l.o.Engine.Load()
}

// answerPeeks answers what was left so far, on the loop goroutine.
func (l *Loop) answerPeeks() {
	l.peeks.mu.Lock()
	left := l.peeks.left
	l.peeks.left = nil
	l.peeks.mu.Unlock()
	for _, p := range left {
		p.fn(l.o.Engine, l.peeks.pending)
		close(p.done)
	}
}
