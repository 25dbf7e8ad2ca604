package drills

import (
	"context"
	"fmt"
	"time"

	"fleetdrill/drills/record"
	"fleetdrill/drills/scenario"
	"fleetdrill/internal/lab"
	"fleetdrill/internal/supervise"
)

// fault is one way of breaking a worker. The runner walks it through its steps in this order: prepare,
// inject, confirm, hold (with check halfway and at its end), heal, confirm healed. A step that fails
// makes the run invalid: what was not seen to happen proves nothing.
//
// Confirmation is by the lab's own eyes wherever they reach (wait, /proc, a subscription or connection
// of its own), never by the target's word alone. It must fail by itself when nothing was injected: a
// run with --no-fault leaves inject out and does everything else.
type fault interface {
	// prepare checks that the target is fit to be broken and that the lab's eyes work on it. Nothing has
	// been changed yet.
	prepare(ctx context.Context) error
	// inject does it and returns as soon as the act is done. What undoes it is in the cleanup journal
	// before.
	inject(ctx context.Context) error
	// confirm waits for proof that it is in force.
	confirm(ctx context.Context) (proof, error)
	// check looks whether it is still in force. A fault that ends by itself is never checked.
	check(ctx context.Context) ([]record.Evidence, error)
	// heal undoes it and confirmHealed waits for proof of that.
	heal(ctx context.Context) error
	confirmHealed(ctx context.Context) ([]record.Evidence, error)
	// close gives back what the lab used to look.
	close()
}

// proof is what confirm saw.
type proof struct {
	evidence []record.Evidence
	// effectiveHi is the instant by which the fault was surely in force, when that is known better than
	// by the arrival of the last evidence: a canary that must not return takes its time to prove so.
	// 0 means the arrival. A later instant would flatter the gateway, whose time counts from it.
	effectiveHi int64
	// healed is set for a fault that ends by itself and had ended when it was confirmed.
	healed *record.Interval
}

// faultKind is a row of the table of faults that can be injected.
type faultKind struct {
	name string
	// proof says how the lab confirms it, for people who read a plan.
	proof string
	// permanent faults are never healed.
	permanent bool
	// ownsTruth says that the engine cannot answer for itself while the fault is in force.
	ownsTruth bool
	make      func(scene) fault
}

// scene is what a fault works on.
type scene struct {
	worker  *lab.Worker
	params  scenario.Params
	journal *supervise.Journal
	// token makes the lab's own requests unique within a run.
	token uint32
}

// faultKinds is the table, in the order of the documentation.
var faultKinds = []faultKind{
	{name: scenario.FaultKill, permanent: true, ownsTruth: true,
		proof: "the lab's wait sees the process end, and a connection of its own to the engine's port is refused",
		make:  func(s scene) fault { return &killFault{scene: s} }},
	{name: scenario.FaultStop, ownsTruth: true,
		proof: "/proc shows state T at once, halfway and before SIGCONT; healed when it runs, steps, and serves the lab's own request",
		make:  func(s scene) fault { return &stopFault{scene: s} }},
	{name: scenario.FaultPause, proof: frozenProof,
		make: func(s scene) fault { return &frozenFault{scene: s, hook: hook{worker: s.worker}} }},
	{name: scenario.FaultWedge, proof: frozenProof,
		make: func(s scene) fault { return &frozenFault{scene: s, hook: hook{worker: s.worker}, wedge: true} }},
	{name: scenario.FaultPartition,
		proof: "a connection of the lab's own through each held link gets no answer, held bytes are counted; healed when it passes again",
		make:  func(s scene) fault { return &partitionFault{scene: s} }},
	{name: scenario.FaultDropBatches,
		proof: "the lab's own subscription sees a gap of exactly that many sequence numbers, its own replay request what became of them",
		make:  func(s scene) fault { return &dropFault{scene: s, hook: hook{worker: s.worker}} }},
	{name: scenario.FaultRestartPublisher,
		proof: "the epoch changes, and the lab's own subscription and replay request see the sequence begin anew",
		make:  func(s scene) fault { return &publisherFault{scene: s, hook: hook{worker: s.worker}} }},
}

const frozenProof = "the engine's hook says so, and a completion of the lab's own, straight to the engine, does not return while /health answers 200; healed when it returns"

// kindOf finds a row of the table.
func kindOf(name string) (faultKind, error) {
	for _, k := range faultKinds {
		if k.name == name {
			return k, nil
		}
	}
	return faultKind{}, fmt.Errorf("fault kind %q cannot be injected here", name)
}

// poll calls look until it says done, fails, or ctx ends; then the error says what was waited for.
func poll(ctx context.Context, every time.Duration, what string, look func() (done bool, err error)) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		done, err := look()
		if done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// seen is an observation at an instant.
func seen(ns int64, format string, args ...any) record.Evidence {
	return record.Evidence{MonoNs: ns, What: fmt.Sprintf(format, args...)}
}
