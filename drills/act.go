package drills

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"fleetdrill/drills/record"
	"fleetdrill/internal/clock"
)

const (
	// prepareWithin bounds a fault's preparation: a subscription of the lab's own takes milliseconds, the
	// first batch of a quiet engine some seconds.
	prepareWithin = 10 * time.Second
	// healedWithin bounds the proof that a heal worked.
	healedWithin = 15 * time.Second
	// lastCheck is how long before the heal a fault is looked at for the last time: a look may take
	// canarySilence.
	lastCheck = canarySilence + 100*time.Millisecond
)

// act is a fault of this run that was prepared, and what became of it.
type act struct {
	step   PlannedStep
	kind   faultKind
	fault  fault
	record *record.Fault // one of run.faults; written under run.mu
	// inForce is set from the injection until the heal is confirmed.
	inForce bool
}

// inject walks a fault as far as its confirmation: prepare, wait for its moment, inject, confirm.
func (r *run) inject(ctx context.Context, step PlannedStep) error {
	a, err := r.prepare(ctx, step)
	if err == nil {
		err = r.strike(ctx, a)
	}
	if err != nil {
		return r.broken(ctx, a, err)
	}
	r.gate(record.Gate{Name: "fault " + step.ID, OK: true, Detail: a.lastEvidence()})
	if step.fault.Heal != nil {
		r.holds.Go(func() {
			if err := r.hold(ctx, a); err != nil && ctx.Err() == nil {
				r.breakOff(r.broken(ctx, a, err))
			}
		})
	}
	return nil
}

// broken records why a fault could not be seen through. That makes a run invalid, unless it was ended
// from outside.
func (r *run) broken(ctx context.Context, a *act, err error) error {
	if ctx.Err() != nil {
		return err
	}
	r.mu.Lock()
	a.record.Error = err.Error()
	r.gates = slices.DeleteFunc(r.gates, func(g record.Gate) bool { return g.Name == "fault "+a.step.ID })
	r.mu.Unlock()
	return r.invalid("fault "+a.step.ID, err.Error())
}

func (a *act) lastEvidence() string {
	if n := len(a.record.Evidence); n > 0 {
		return a.record.Evidence[n-1].What
	}
	return ""
}

// prepare makes the fault and lets it look at its target. It always returns an act, so that whatever goes
// wrong is recorded.
func (r *run) prepare(ctx context.Context, step PlannedStep) (*act, error) {
	a := &act{step: step, record: &record.Fault{ID: step.ID, Kind: step.Kind, Target: step.Target}}
	r.mu.Lock()
	r.faults = append(r.faults, a.record)
	r.mu.Unlock()
	worker := r.fleet.ByID(step.Target)
	if worker == nil {
		return a, fmt.Errorf("no worker %s", step.Target)
	}
	kind, err := kindOf(step.Kind)
	if err != nil {
		return a, err
	}
	a.kind = kind
	a.fault = kind.make(scene{worker: worker, params: step.fault.Params, journal: r.journal, blockSize: r.plan.BlockSize, selfHeals: step.fault.SelfHeals(), token: uint32(r.plan.Seed)})
	r.acts = append(r.acts, a)
	within, cancel := context.WithTimeoutCause(ctx, prepareWithin, fmt.Errorf("not prepared within %v", prepareWithin))
	defer cancel()
	if err := a.fault.prepare(within); err != nil {
		return a, fmt.Errorf("preparing: %w", err)
	}
	return a, nil
}

// strike waits for the fault's moment, injects it and wants it confirmed. Without faults everything
// happens but the injection, so that a proof that proves nothing is found out.
func (r *run) strike(ctx context.Context, a *act) error {
	if err := r.awaitMoment(ctx, a.step); err != nil {
		return err
	}
	id, worker := a.step.ID, a.step.Target
	r.say(fmt.Sprintf("%s: %s %s", id, a.step.Kind, worker))
	before := clock.MonoNs()
	if !r.o.NoFault {
		if a.kind.ownsTruth {
			r.sampler.own(worker, true)
		}
		a.inForce = true
		if err := a.fault.inject(ctx); err != nil {
			return fmt.Errorf("injecting: %w", err)
		}
	}
	r.marks.set(id+".inject", record.Interval{Lo: before, Hi: clock.MonoNs()})
	p, err := r.confirm(ctx, a)
	if err != nil {
		return fmt.Errorf("confirming: %w", err)
	}
	// It took effect somewhere between the moment before the act and the proof.
	r.marks.set(id+".effective", record.Interval{Lo: before, Hi: p.effectiveHi})
	if p.healed != nil {
		a.inForce = false
		r.marks.set(id+".healed", *p.healed)
	}
	return nil
}

func (r *run) confirm(ctx context.Context, a *act) (proof, error) {
	within := a.step.fault.Confirm.Within
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("not confirmed within %v", within))
	defer cancel()
	p, err := a.fault.confirm(ctx)
	if p.effectiveHi == 0 {
		p.effectiveHi = clock.MonoNs()
	}
	if err == nil && r.o.NoFault {
		err = errors.New("it was confirmed although nothing was injected: its proof proves nothing")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	a.record.Evidence = append(a.record.Evidence, p.evidence...)
	a.record.Confirmed = err == nil
	return p, err
}

// hold keeps a fault in force for its time, looking halfway and at the end whether it still is, and then
// heals it.
func (r *run) hold(ctx context.Context, a *act) error {
	effective, err := r.awaitMark(ctx, markNamed(a.step.ID+".effective"))
	if err != nil {
		return err
	}
	h := a.step.fault.Heal
	if h.When != nil {
		err = r.awaitTrue(ctx, h.When, effective.Hi+int64(h.Timeout), fmt.Sprintf("%v of %s.effective", h.Timeout, a.step.ID))
		if err == nil {
			err = r.check(ctx, a)
		}
	} else {
		err = r.holdFor(ctx, a, effective.Hi, h.After)
	}
	if err != nil {
		return err
	}
	return r.heal(ctx, a)
}

// holdFor holds a fault for a fixed time. One that is shorter than two looks has only the second.
func (r *run) holdFor(ctx context.Context, a *act, from int64, length time.Duration) error {
	looks := []time.Duration{length / 2, length - lastCheck}
	if length < 4*lastCheck {
		looks = []time.Duration{max(0, length-lastCheck)}
	}
	for _, at := range looks {
		if err := r.sleepUntil(ctx, from+int64(at)); err != nil {
			return err
		}
		if err := r.check(ctx, a); err != nil {
			return err
		}
	}
	return r.sleepUntil(ctx, from+int64(length))
}

func (r *run) check(ctx context.Context, a *act) error {
	e, err := a.fault.check(ctx)
	if err != nil {
		return fmt.Errorf("holding: %w", err)
	}
	r.witness(a, e)
	return nil
}

func (r *run) witness(a *act, e []record.Evidence) {
	r.mu.Lock()
	a.record.Evidence = append(a.record.Evidence, e...)
	r.mu.Unlock()
}

// heal undoes a fault and waits for proof that it is undone.
func (r *run) heal(ctx context.Context, a *act) error {
	r.say(fmt.Sprintf("%s: healing %s", a.step.ID, a.step.Target))
	before := clock.MonoNs()
	if err := a.fault.heal(ctx); err != nil {
		return fmt.Errorf("healing: %w", err)
	}
	r.marks.set(a.step.ID+".heal", record.Interval{Lo: before, Hi: clock.MonoNs()})
	ctx, cancel := context.WithTimeoutCause(ctx, healedWithin, fmt.Errorf("not healed within %v", healedWithin))
	defer cancel()
	e, err := a.fault.confirmHealed(ctx)
	r.witness(a, e)
	if err != nil {
		return fmt.Errorf("confirming the heal: %w", err)
	}
	a.inForce = false
	if a.kind.ownsTruth {
		r.sampler.own(a.step.Target, false)
	}
	r.marks.set(a.step.ID+".healed", record.Interval{Lo: before, Hi: clock.MonoNs()})
	return nil
}

// undoAll heals what is still in force, newest first, also when the run's context has ended, and gives
// back what the faults used. The holds have ended before.
func (r *run) undoAll() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), HealGrace, fmt.Errorf("not healed within %v", HealGrace))
	defer cancel()
	var errs []error
	for _, a := range slices.Backward(r.acts) {
		if a.inForce && !a.kind.permanent {
			if err := r.heal(ctx, a); err != nil {
				errs = append(errs, fmt.Errorf("undoing %s: %w", a.step.ID, err))
			}
		}
		a.fault.close()
	}
	r.acts = nil
	return errors.Join(errs...)
}
