package loop

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"fleetdrill/mockworker/engine"
)

// PauseMode is what a pause does to the requests that are in the engine, as POST /pause calls it.
type PauseMode string

// The modes of a pause. In all of them new requests wait at the gate until the engine is resumed.
const (
	PauseAbort PauseMode = "abort" // they end at once, with finish "abort"
	PauseWait  PauseMode = "wait"  // they run to their end
	PauseKeep  PauseMode = "keep"  // they stand still, and go on afterwards
)

// pause is the state of the gate. Unlike a fault it is something that an operator of a real engine does.
type pause struct {
	// shut leaves new requests in the mailbox.
	shut atomic.Bool
	// held keeps the engine from stepping.
	held atomic.Bool
	// sleep is the level of sleep, for metrics.
	sleep atomic.Int32
}

// Pause shuts the gate and returns when the requests in the engine are dealt with. It fails when ctx ends
// before, with the gate shut.
func (l *Loop) Pause(ctx context.Context, mode PauseMode) error {
	l.pause.shut.Store(true)
	switch mode {
	case PauseKeep:
		l.pause.held.Store(true)
		return l.Ask(ctx, func(engine.Core) {}) // the step in flight has ended
	case PauseAbort:
		l.post(letter{kind: abortAllLetter})
	}
	return l.AwaitIdle(ctx)
}

// Resume opens the gate.
func (l *Loop) Resume() {
	l.pause.shut.Store(false)
	l.pause.held.Store(false)
	l.Wake()
}

// Paused says whether the gate is shut.
func (l *Loop) Paused() bool { return l.pause.shut.Load() }

// AwaitIdle returns when the engine has no request and has given back the blocks of the last one.
func (l *Loop) AwaitIdle(ctx context.Context) error {
	idle := make(chan struct{})
	if !l.post(letter{kind: idleLetter, asked: idle}) {
		return ErrClosed
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the requests in the engine to end: %w", ctx.Err())
	case <-l.done:
		return ErrClosed
	}
}

// tellIdlers is called when the engine found nothing to do.
func (l *Loop) tellIdlers() {
	for _, c := range l.idlers {
		close(c)
	}
	l.idlers = nil
}

// takeBack ends a request that its client gave up while it waited at the gate; the engine never knew it.
func (l *Loop) takeBack(s *Stream) {
	l.mailMu.Lock()
	i := slices.IndexFunc(l.mail, func(m letter) bool { return m.kind == addLetter && m.stream == s })
	if i >= 0 {
		l.mail = slices.Delete(l.mail, i, i+1)
	}
	l.mailMu.Unlock()
	if i < 0 {
		return
	}
	s.added = true
	l.open.Add(-1)
	s.end(engine.FinishAbort, nil)
	l.out.send(true)
}

// SetSleep notes how deep the engine sleeps, 0 being awake. What sleep does is done by pausing and clearing.
func (l *Loop) SetSleep(level int) {
	l.pause.sleep.Store(int32(level))
}
