package drills

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"fleetdrill/drills/predicate"
	"fleetdrill/drills/record"
	"fleetdrill/internal/clock"
)

// eachSample calls check with every new sample, or the newest of several, until it says stop, ctx ends
// or the deadline passes (0 = none); stopped says that check did.
func (r *run) eachSample(ctx context.Context, deadlineNs int64, check func(last record.Sample) (stop bool)) (stopped bool, err error) {
	seen := 0
	for {
		fresh := r.sampler.next()
		if samples := r.sampler.snapshot(); len(samples) > seen {
			seen = len(samples)
			if check(samples[seen-1]) {
				return true, nil
			}
		}
		if deadlineNs > 0 && clock.MonoNs() >= deadlineNs {
			return false, nil
		}
		if err := r.await(ctx, fresh, deadlineNs); err != nil {
			return false, err
		}
	}
}

// await waits for the channel, the deadline (0 = none), the end of the gateway or the end of ctx; the
// last two are errors.
func (r *run) await(ctx context.Context, ch <-chan struct{}, deadlineNs int64) error {
	var timeout <-chan time.Time
	if deadlineNs > 0 {
		t := time.NewTimer(time.Duration(max(0, deadlineNs-clock.MonoNs())))
		defer t.Stop()
		timeout = t.C
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-r.gateway.Child.Done():
		return fmt.Errorf("the gateway ended on its own: %v", r.gateway.Child.Exit())
	case <-ch:
	case <-timeout:
	}
	return nil
}

// awaitSteady waits until everything required held at every sample for the hold time. It reports whether
// that state was reached and adds the gate that says so.
func (r *run) awaitSteady(ctx context.Context) (bool, error) {
	st := r.s.Steady
	r.say(fmt.Sprintf("waiting for a steady state (%v of %s)", st.Hold, cmp.Or(joinExprs(st.Require), nothingRequired)))
	deadline := clock.MonoNs() + int64(st.Timeout)
	var since int64 // start of the current streak, 0 outside one
	var broken string
	reached, err := r.eachSample(ctx, deadline, func(last record.Sample) bool {
		if why := r.unmet(liveAt); why != "" {
			since, broken = 0, why
			return false
		}
		if since == 0 {
			since = last.ReceivedNs
		}
		if last.ReceivedNs-since < int64(st.Hold) {
			return false
		}
		r.marks.instant("steady.start", since)
		r.marks.instant("steady.end", last.ReceivedNs)
		return true
	})
	if err != nil {
		return false, err
	}
	gate := record.Gate{Name: "steady", OK: reached, Detail: fmt.Sprintf("everything required held for %v", st.Hold)}
	if !reached {
		gate.Detail = fmt.Sprintf("not reached within %v; last in the way: %s", st.Timeout, broken)
	}
	r.gate(gate)
	return reached, nil
}

// liveAt evaluates a requirement over everything since the load began.
func liveAt(x *predicate.Expr, env *predicate.Env, _ int) predicate.Truth { return x.Live(env).Truth }

// steadyAgain looks at the end of a run whether the fleet has come back to its steady state since the
// last heal. It is evidence and no gate: a rule that needs it says so.
func (r *run) steadyAgain() {
	var last *act
	var from int64
	for _, a := range r.acts {
		if at, ok := r.marks.resolve(markNamed(a.step.ID + ".healed")); ok && at.Hi >= from {
			last, from = a, at.Hi
		}
	}
	if last == nil {
		return
	}
	what := "the steady state holds again at the end of the run"
	why := r.unmet(func(x *predicate.Expr, env *predicate.Env, k int) predicate.Truth { return x.At(env, k, from).Truth })
	if why != "" {
		what = "not steady at the end of the run: " + why
	}
	r.witness(last, []record.Evidence{seen(clock.MonoNs(), "%s", what)})
}

// unmet names the first requirement that does not hold at the newest sample, empty when all do. Errors
// and lags of before a heal are no business of the state after it, so eval says since when to count.
func (r *run) unmet(eval func(x *predicate.Expr, env *predicate.Env, k int) predicate.Truth) string {
	rec := r.record()
	env := predicate.NewEnv(rec)
	for _, e := range r.s.Steady.Require {
		switch eval(e, env, len(rec.Samples)-1) {
		case predicate.False:
			return e.String() + " was false"
		case predicate.Unknown:
			return e.String() + " was not known"
		}
	}
	return ""
}

func joinExprs(es []*predicate.Expr) string {
	texts := make([]string, len(es))
	for i, e := range es {
		texts[i] = e.String()
	}
	return strings.Join(texts, ", ")
}
