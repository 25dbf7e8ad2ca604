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

// maxWait bounds the wait for a mark when the scenario's budget does not bound the run: a mark that has
// not come by then never will.
const maxWait = 10 * time.Minute

// HealGrace bounds the healing of everything that is in force when a run is interrupted.
const HealGrace = 30 * time.Second

// timeline runs the planned steps in order. A fault's step is over once the fault is confirmed; it is
// held and healed beside the steps that follow, and the timeline ends when all heals are confirmed. A
// step that cannot be done makes the run invalid, which is no error of the lab. However it ends, nothing
// stays broken: what no heal was planned for, or what the timeline did not get to, is undone in reverse
// order.
func (r *run) timeline(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r.breakOff = cancel
	err := r.steps(ctx)
	if err != nil {
		cancel(err)
	}
	r.holds.Wait()
	if err == nil && errors.Is(context.Cause(ctx), errInvalid) {
		err = errInvalid
	}
	if err == nil {
		r.steadyAgain()
	}
	if errors.Is(err, errInvalid) || errors.Is(context.Cause(ctx), errInvalid) {
		err = nil
	}
	return errors.Join(err, r.undoAll())
}

func (r *run) steps(ctx context.Context) error {
	for _, step := range r.plan.Steps {
		var err error
		if step.wait != nil {
			err = r.wait(ctx, step)
		} else {
			err = r.inject(ctx, step)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// wait lets time pass until a mark, which may have yet to come.
func (r *run) wait(ctx context.Context, step PlannedStep) error {
	r.marks.instant(step.ID+".start", clock.MonoNs())
	r.say(fmt.Sprintf("%s: until %s", step.ID, step.wait.Until))
	until, err := r.awaitMark(ctx, step.wait.Until)
	if errors.Is(err, errNeverCame) {
		return r.invalid(step.ID, err.Error())
	}
	if err != nil {
		return err
	}
	// Until.Hi is late enough whatever the mark's true instant was, and the sample that brackets it must
	// have been taken too.
	if err := r.sleepUntil(ctx, until.Hi); err != nil {
		return err
	}
	if _, err := r.eachSample(ctx, 0, func(last record.Sample) bool { return last.SentNs >= until.Hi }); err != nil {
		return err
	}
	r.marks.set(step.ID+".end", until)
	return nil
}

// errNeverCame says that a mark did not come in time.
var errNeverCame = errors.New("never came")

// awaitMark waits for a mark to come, not for its instant to pass.
func (r *run) awaitMark(ctx context.Context, m predicate.Mark) (record.Interval, error) {
	for {
		at, fresh := r.marks.await(m)
		if fresh == nil {
			return at, nil
		}
		if clock.MonoNs() >= r.deadlineNs {
			return at, fmt.Errorf("mark %s %w within %v", m.Name, errNeverCame, r.budget())
		}
		if err := r.await(ctx, fresh, r.deadlineNs); err != nil {
			return at, err
		}
	}
}

// budget is how long a run may take from its start to its last mark.
func (r *run) budget() time.Duration {
	if b := r.s.Budget.Run; b > 0 {
		return b
	}
	return maxWait
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

// awaitMoment waits for a fault's instant and, when it has a condition, for the first sample at which it
// holds.
func (r *run) awaitMoment(ctx context.Context, step PlannedStep) error {
	from, err := r.awaitMark(ctx, step.from)
	if err != nil {
		return err
	}
	if err := r.sleepUntil(ctx, from.Hi); err != nil {
		return err
	}
	at := step.fault.At
	if at.When == nil {
		return nil
	}
	return r.awaitTrue(ctx, at.When, from.Hi+int64(at.Within), fmt.Sprintf("%v of %s", at.Within, step.from))
}

// awaitTrue waits for a sample at which a predicate holds; span names the deadline for people.
func (r *run) awaitTrue(ctx context.Context, x *predicate.Expr, deadlineNs int64, span string) error {
	met, err := r.eachSample(ctx, deadlineNs, func(record.Sample) bool {
		return x.Live(predicate.NewEnv(r.record())).Truth == predicate.True
	})
	if err == nil && !met {
		err = fmt.Errorf("%s did not become true within %s", x, span)
	}
	return err
}

// invalid adds a failed gate and ends the timeline, whoever finds out.
func (r *run) invalid(gate, why string) error {
	r.gate(record.Gate{Name: gate, Detail: why})
	return errInvalid
}
