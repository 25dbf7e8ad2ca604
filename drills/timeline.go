package drills

import (
	"context"
	"errors"
	"fmt"
	"time"

	"fleetdrill/drills/predicate"
	"fleetdrill/drills/record"
	"fleetdrill/internal/clock"
)

// errInvalid ends a timeline that cannot prove anything any more; the gate that says why is in the run.
var errInvalid = errors.New("the run cannot prove anything")

// timeline runs the planned steps in order. A step that cannot be done makes the run invalid, which is no
// error of the lab.
func (r *run) timeline(ctx context.Context) error {
	for _, step := range r.plan.Steps {
		var err error
		if step.wait != nil {
			err = r.wait(ctx, step)
		} else {
			err = r.inject(ctx, step)
		}
		if errors.Is(err, errInvalid) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// wait lets time pass until a mark.
func (r *run) wait(ctx context.Context, step PlannedStep) error {
	r.marks.instant(step.ID+".start", clock.MonoNs())
	until, ok := r.marks.resolve(step.wait.Until)
	if !ok {
		return r.invalid(step.ID, fmt.Sprintf("mark %s never came", step.wait.Until.Name))
	}
	r.say(fmt.Sprintf("%s: %.1f s", step.ID, time.Duration(until.Hi-clock.MonoNs()).Seconds()))
	// Until.Hi is late enough whatever the mark's true instant was, and the sample that brackets it must
	// have been taken too.
	if err := r.sleepUntil(ctx, until.Hi); err != nil {
		return err
	}
	if _, err := r.eachSample(ctx, 0, func(rec *record.Record) bool {
		return rec.Samples[len(rec.Samples)-1].SentNs >= until.Hi
	}); err != nil {
		return err
	}
	r.marks.set(step.ID+".end", until)
	return nil
}

// sleepUntil waits for an instant, the end of ctx or the end of the gateway.
func (r *run) sleepUntil(ctx context.Context, ns int64) error {
	for clock.MonoNs() < ns {
		if err := r.await(ctx, nil, ns); err != nil {
			return err
		}
	}
	return nil
}

// inject walks a fault through its steps: prepare, wait for its moment, inject, confirm, hold, heal,
// confirm healed.
func (r *run) inject(ctx context.Context, step PlannedStep) error {
	rec := record.Fault{ID: step.ID, Kind: step.Kind, Target: step.Target}
	err := r.injectInto(ctx, step, &rec)
	if err != nil {
		rec.Error = err.Error()
	}
	r.faults = append(r.faults, rec)
	if err == nil {
		r.gates = append(r.gates, record.Gate{Name: "fault " + step.ID, OK: true, Detail: rec.Evidence[len(rec.Evidence)-1].What})
		return nil
	}
	if ctx.Err() != nil {
		return err
	}
	return r.invalid("fault "+step.ID, err.Error())
}

func (r *run) injectInto(ctx context.Context, step PlannedStep, rec *record.Fault) error {
	worker := r.fleet.ByID(step.Target)
	if worker == nil {
		return fmt.Errorf("no worker %s", step.Target)
	}
	f, err := newFault(step.Kind, worker)
	if err != nil {
		return err
	}
	if err := f.prepare(); err != nil {
		return err
	}
	if err := r.awaitMoment(ctx, step); err != nil {
		return err
	}
	if f.ownsTruth() {
		r.sampler.own(worker.ID)
	}
	r.say(fmt.Sprintf("%s: %s %s", step.ID, step.Kind, step.Target))
	before := clock.MonoNs()
	if err := f.inject(); err != nil {
		return fmt.Errorf("injecting: %w", err)
	}
	r.marks.set(step.ID+".inject", record.Interval{Lo: before, Hi: clock.MonoNs()})
	within := step.fault.Confirm.Within
	confirm, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("not confirmed within %v", within))
	defer cancel()
	evidence, err := f.confirm(confirm)
	rec.Evidence = append(rec.Evidence, evidence...)
	if err != nil {
		return fmt.Errorf("confirming: %w", err)
	}
	rec.Confirmed = true
	// It took effect somewhere between the moment before the act and the arrival of the proof.
	effective := record.Interval{Lo: before, Hi: clock.MonoNs()}
	r.marks.set(step.ID+".effective", effective)
	if f.permanent() {
		return nil
	}
	return r.heal(ctx, step, f, rec, effective)
}

// heal holds a fault for its time, undoes it and waits for proof.
func (r *run) heal(ctx context.Context, step PlannedStep, f fault, rec *record.Fault, effective record.Interval) error {
	if err := r.sleepUntil(ctx, effective.Hi+int64(step.fault.Heal.After)); err != nil {
		return errors.Join(err, f.heal())
	}
	before := clock.MonoNs()
	if err := f.heal(); err != nil {
		return fmt.Errorf("healing: %w", err)
	}
	r.marks.set(step.ID+".heal", record.Interval{Lo: before, Hi: clock.MonoNs()})
	evidence, err := f.confirmHealed(ctx)
	rec.Evidence = append(rec.Evidence, evidence...)
	if err != nil {
		return fmt.Errorf("confirming the heal: %w", err)
	}
	r.marks.set(step.ID+".healed", record.Interval{Lo: before, Hi: clock.MonoNs()})
	return nil
}

// awaitMoment waits for a fault's instant and, when it has a condition, for the first sample at which it
// holds.
func (r *run) awaitMoment(ctx context.Context, step PlannedStep) error {
	from, ok := r.marks.resolve(step.from)
	if !ok {
		return fmt.Errorf("mark %s never came", step.from.Name)
	}
	if err := r.sleepUntil(ctx, from.Hi); err != nil {
		return err
	}
	when := step.fault.At.When
	if when == nil {
		return nil
	}
	met, err := r.eachSample(ctx, from.Hi+int64(step.fault.At.Within), func(rec *record.Record) bool {
		return r.holds(when, rec) == predicate.True
	})
	if err != nil {
		return err
	}
	if !met {
		return fmt.Errorf("%s did not become true within %v of %s", when, step.fault.At.Within, step.from)
	}
	return nil
}

// invalid adds a failed gate and ends the timeline.
func (r *run) invalid(gate, why string) error {
	r.gates = append(r.gates, record.Gate{Name: gate, Detail: why})
	return errInvalid
}
