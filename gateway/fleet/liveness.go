package fleet

import (
	"fmt"

	"fleetdrill/internal/contract"
)

// PingResult is what became of a ping.
type PingResult uint8

// The results: PingOK is a 200, PingStatus any other answer, PingRefused a refusal, reset or close
// without an answer, PingSilent no answer in time.
const (
	PingOK PingResult = iota
	PingStatus
	PingRefused
	PingSilent
)

// statusUnavailable is what a draining or dead engine answers on /health.
const statusUnavailable = 503

// VetoedError is the cause of a request that the fleet ended.
type VetoedError struct {
	Worker, Reason string
}

func (e *VetoedError) Error() string { return fmt.Sprintf("worker %s is %s", e.Worker, e.Reason) }

// PingDone reports a ping that began at sent; status is the answer's, if any.
func (c *Core) PingDone(now, sent int64, w *Worker, result PingResult, status int) {
	if w.removed {
		return
	}
	switch result {
	case PingOK:
		c.answered(now, w)
		c.healthy(now, w)
	case PingStatus:
		c.answered(now, w)
		if status == statusUnavailable && w.phase == contract.PhaseReady && !c.livenessOff {
			c.setPhase(now, w, contract.PhaseDraining)
		}
	case PingRefused:
		c.Refused(now, w)
		if sent >= w.suspect {
			w.refusedPings++
		}
	case PingSilent:
		// Not every ping since was refused, so this is silence, which has its own clock.
		w.suspect = 0
	}
	if result != PingOK && c.hairTrigger {
		c.cut(now, w)
	}
	c.show(now, w)
}

// SetHairTrigger switches the handicap of that name: while on, one ping without a 200 in its time vetoes
// the worker at once, whatever else is heard of it.
func (c *Core) SetHairTrigger(on bool) { c.hairTrigger = on }

// Refused reports a refusal or reset of a ping, a connect or a stream. The first one makes the worker
// suspect and asks for a ping at once.
func (c *Core) Refused(now int64, w *Worker) {
	// A refusal is an answer of the machine: whoever refuses is not cut off.
	w.lastRefusal = now
	if w.suspect == 0 {
		w.suspect, w.refusedPings = now, 0
		w.nextPing = now
	}
}

// answered is an answer on a connection made just now: contact, and the end of suspicion. A byte of an
// old stream is contact too, but says nothing about the listener.
func (c *Core) answered(now int64, w *Worker) {
	w.suspect = 0
	c.contact(now, w)
}

// contact is request contact. It lifts partitioned; dead waits for a 200.
func (c *Core) contact(at int64, w *Worker) {
	w.lastContact = max(w.lastContact, at)
	if w.partitioned > 0 {
		w.partitioned = 0
		c.readmit(at, w)
	}
}

// healthy is a 200 of /health: the one thing that makes a worker ready.
func (c *Core) healthy(now int64, w *Worker) {
	if w.dead > 0 {
		w.dead = 0
		c.readmit(now, w)
	}
	if w.phase == contract.PhaseStarting {
		c.actions = append(c.actions, Action{Kind: Contacted, Worker: w})
	}
	c.ready(now, w)
}

// readmit gives a returned worker a clean start: what is remembered of its load and its failures belongs
// to the time before.
func (c *Core) readmit(now int64, w *Worker) {
	c.admit(now, w)
	w.breaker = breaker{}
	w.load = load{}
	w.progress = progress{}
	for _, r := range w.requests {
		r.awaited = false // their waits were part of the old measurement
	}
	w.nextPoll = 0
	c.actions = append(c.actions, Action{Kind: Contacted, Worker: w})
}

// judgeSuspect finds dead and draining workers: both refuse new connections for the whole time; a
// draining one keeps ours open.
func (c *Core) judgeSuspect(now int64, w *Worker) {
	if w.dead > 0 || w.suspect == 0 || w.refusedPings == 0 || now-w.suspect < int64(c.timing.Dead) {
		return
	}
	if w.conns.Load() > 0 {
		if w.phase == contract.PhaseReady {
			c.setPhase(now, w, contract.PhaseDraining)
		}
		return
	}
	w.dead, w.partitioned, w.hung = now, 0, 0
	c.setPhase(now, w, contract.PhaseStarting)
	c.actions = append(c.actions, Action{Kind: Died, Worker: w})
	c.end(w, contract.VetoDead, func(*Request) bool { return true })
}

// judgeSilent finds partitioned workers: nothing heard for the stall time, not even a refusal.
func (c *Core) judgeSilent(now int64, w *Worker) {
	if now-max(w.lastContact, w.lastRefusal) >= int64(c.timing.Stall) {
		c.cut(now, w)
	}
}

// cut takes a worker for partitioned, unless it is out already.
func (c *Core) cut(now int64, w *Worker) {
	if w.phase == contract.PhaseStarting || w.dead > 0 || w.partitioned > 0 || c.livenessOff {
		return
	}
	w.partitioned = now
	c.actions = append(c.actions, Action{Kind: Cut, Worker: w})
	c.end(w, contract.VetoPartitioned, func(*Request) bool { return true })
}

// end asks for the end of those requests of w that match.
func (c *Core) end(w *Worker, reason string, match func(*Request) bool) {
	for _, r := range w.requests {
		if !r.ending && match(r) {
			r.ending = true
			c.actions = append(c.actions, Action{Kind: EndRequest, Worker: w, Request: r, Cause: &VetoedError{w.ID, reason}})
		}
	}
}
