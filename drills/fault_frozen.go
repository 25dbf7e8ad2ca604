package drills

import (
	"context"
	"errors"
	"fmt"
	"time"

	"fleetdrill/drills/record"
	"fleetdrill/internal/clock"
)

// frozenFault is a pause or a wedge: the engine's step loop stands still while its ports answer.
type frozenFault struct {
	hookFault
	canary *canary
	// open is the end of the canary that was sent into the frozen engine.
	open <-chan answer
}

// frozen makes a pause or a wedge.
func frozen(kind string) func(scene) fault {
	return func(s scene) fault { return &frozenFault{hookFault: s.armed(kind)} }
}

// prepare sees a canary return, or its silence later would prove nothing.
func (f *frozenFault) prepare(ctx context.Context) error {
	f.canary = newCanary(f.worker, f.token)
	_, err := f.canary.complete(ctx)
	return err
}

// confirm sends a canary into the engine and wants silence. The fault counts as in force from the hook's
// answer on: the canary left after it and shows that it was true.
func (f *frozenFault) confirm(ctx context.Context) (proof, error) {
	armed := clock.MonoNs()
	f.open = f.canary.send()
	select {
	case a := <-f.open:
		if a.err != nil {
			return proof{}, a.err
		}
		return proof{}, fmt.Errorf("%s served a completion of the lab's own in %.0f ms", f.worker.ID, float64(a.ns-armed)/1e6)
	case <-time.After(canarySilence):
	case <-ctx.Done():
		return proof{}, context.Cause(ctx)
	}
	e := seen(clock.MonoNs(), "a completion of the lab's own, straight to %s, has no answer after %v", f.worker.ID, canarySilence)
	if err := f.canary.healthy(ctx); err != nil {
		return proof{}, err
	}
	healthy := seen(clock.MonoNs(), "/health of %s answers 200", f.worker.ID)
	acted, err := f.hook.awaitActed(ctx)
	if err != nil {
		return proof{}, err
	}
	return proof{evidence: []record.Evidence{acted, e, healthy}, effectiveHi: armed}, nil
}

// check wants the canary still without an answer, and the engine still looking healthy.
func (f *frozenFault) check(ctx context.Context) ([]record.Evidence, error) {
	select {
	case a := <-f.open:
		return nil, fmt.Errorf("the canary came back at %d (%v): %s was not frozen to the end", a.ns, a.err, f.worker.ID)
	default:
	}
	if err := f.canary.healthy(ctx); err != nil {
		return nil, err
	}
	return []record.Evidence{seen(clock.MonoNs(), "%s still leaves the canary waiting and answers /health", f.worker.ID)}, nil
}

// confirmHealed waits for the very request that had no answer.
func (f *frozenFault) confirmHealed(ctx context.Context) ([]record.Evidence, error) {
	if f.open == nil {
		return nil, errors.New("no canary was sent")
	}
	select {
	case a := <-f.open:
		if a.err != nil {
			return nil, a.err
		}
		return []record.Evidence{seen(a.ns, "%s has answered the canary", f.worker.ID)}, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("the canary has no answer: %w", context.Cause(ctx))
	}
}

func (f *frozenFault) close() {
	if f.canary != nil {
		f.canary.close()
	}
}
