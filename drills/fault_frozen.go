package drills

import (
	"context"
	"errors"
	"fmt"
	"time"

	"fleetdrill/drills/record"
	"fleetdrill/drills/scenario"
	"fleetdrill/internal/clock"
)

// frozenFault is a pause or a wedge: the engine's step loop stands still while its ports answer.
type frozenFault struct {
	scene
	hook
	wedge  bool
	canary *canary
	// open is the end of the canary that was sent into the frozen engine.
	open <-chan answer
}

func (f *frozenFault) kind() string {
	if f.wedge {
		return scenario.FaultWedge
	}
	return scenario.FaultPause
}

// prepare sees a canary return, or its silence later would prove nothing.
func (f *frozenFault) prepare(ctx context.Context) error {
	f.canary = newCanary(f.scene.worker, f.token)
	_, err := f.canary.complete(ctx)
	return err
}

func (f *frozenFault) inject(ctx context.Context) error {
	return f.arm(ctx, map[string]any{"kind": f.kind(), "rank": 0})
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
		return proof{}, fmt.Errorf("%s served a completion of the lab's own in %.0f ms", f.scene.worker.ID, float64(a.ns-armed)/1e6)
	case <-time.After(canarySilence):
	case <-ctx.Done():
		return proof{}, context.Cause(ctx)
	}
	e := seen(clock.MonoNs(), "a completion of the lab's own, straight to %s, has no answer after %v", f.scene.worker.ID, canarySilence)
	if err := f.canary.healthy(ctx); err != nil {
		return proof{}, err
	}
	healthy := seen(clock.MonoNs(), "/health of %s answers 200", f.scene.worker.ID)
	acted, err := f.awaitActed(ctx)
	if err != nil {
		return proof{}, err
	}
	return proof{evidence: []record.Evidence{acted, e, healthy}, effectiveHi: armed}, nil
}

// check wants the canary still without an answer, and the engine still looking healthy.
func (f *frozenFault) check(ctx context.Context) ([]record.Evidence, error) {
	select {
	case a := <-f.open:
		return nil, fmt.Errorf("the canary came back at %d (%v): %s was not frozen to the end", a.ns, a.err, f.scene.worker.ID)
	default:
	}
	if err := f.canary.healthy(ctx); err != nil {
		return nil, err
	}
	return []record.Evidence{seen(clock.MonoNs(), "%s still leaves the canary waiting and answers /health", f.scene.worker.ID)}, nil
}

func (f *frozenFault) heal(ctx context.Context) error { return f.end(ctx) }

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
		return []record.Evidence{seen(a.ns, "%s has answered the canary", f.scene.worker.ID)}, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("the canary has no answer: %w", context.Cause(ctx))
	}
}

func (f *frozenFault) close() {
	if f.canary != nil {
		f.canary.close()
	}
}
