package drills

import (
	"context"
	"fmt"
	"time"

	"fleetdrill/drills/record"
	"fleetdrill/drills/scenario"
	"fleetdrill/internal/contract"
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
	// blockSize is the engine's, in tokens.
	blockSize int
	// selfHeals says that nobody will heal it.
	selfHeals bool
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
	{name: scenario.FaultPartition,
		proof: "a connection of the lab's own through each held link gets no answer, held bytes are counted; healed when it passes again",
		make:  func(s scene) fault { return &partitionFault{scene: s} }},

	{name: contract.FaultPause, proof: frozenProof, make: frozen(contract.FaultPause)},
	{name: contract.FaultWedge, proof: frozenProof, make: frozen(contract.FaultWedge)},
	{name: contract.FaultDropBatches,
		proof: "the lab's own subscription sees a gap of exactly that many sequence numbers, its own replay request what became of them",
		make:  func(s scene) fault { return &dropFault{hookFault: s.armed(contract.FaultDropBatches)} }},
	{name: contract.FaultDelayPublisher,
		proof: "the lab's own subscription sees a batch arrive that much behind its time stamp; healed when one arrives at once",
		make:  func(s scene) fault { return &delayFault{hookFault: s.armed(contract.FaultDelayPublisher)} }},
	{name: contract.FaultMutePublisher,
		proof: "the engine caches a prompt of the lab's own, and its own subscription sees no batch; healed when the next prompt's batch comes",
		make:  func(s scene) fault { return &muteFault{hookFault: s.armed(contract.FaultMutePublisher)} }},
	{name: contract.FaultRestartPublisher,
		proof: "the epoch changes, and the lab's own subscription and replay request see the sequence begin anew",
		make:  func(s scene) fault { return &publisherFault{hookFault: s.armed(contract.FaultRestartPublisher)} }},

	surprise(contract.FaultDuplicate, "with something twice"),
	surprise(contract.FaultReorder, "overtaken by the one behind"),
	surprise(contract.FaultCorrupt, "with the wrong field"),
	surprise(contract.FaultTruncate, "cut in the middle"),
	surprise(contract.FaultUnknownEvent, "with an event of an unknown type"),
	surprise(contract.FaultUnknownField, "with a field that no version has"),
	surprise(contract.FaultUnknownParent, "with a parent that nobody has heard of and the engine does not have"),
	surprise(contract.FaultStaleStore, "that store again what they remove"),
	surprise(contract.FaultMaskedStore, "with more tokens than its hashes stand for"),

	{name: contract.FaultMuteStores,
		proof: "the engine has blocks, of a prompt of the lab's own too, that the lab's own subscription and replay do not tell of; healed when it sees a store again",
		make:  func(s scene) fault { return &storesFault{hookFault: s.armed(contract.FaultMuteStores)} }},
	{name: contract.FaultMuteRemovals, proof: ghostProof + "; healed when its own subscription sees a removal again",
		make: func(s scene) fault { return &removalsFault{hookFault: s.armed(contract.FaultMuteRemovals)} }},
	{name: contract.FaultLateRemovals, proof: ghostProof + "; healed when their removals have come",
		make: func(s scene) fault { return &removalsFault{hookFault: s.armed(contract.FaultLateRemovals)} }},
	{name: contract.FaultReplayHang, proof: replayProof("no frame at all"), make: replayKind(contract.FaultReplayHang)},
	{name: contract.FaultReplayEmpty, proof: replayProof("nothing but the end marker"), make: replayKind(contract.FaultReplayEmpty)},
	{name: contract.FaultReplayTruncate, proof: replayProof("exactly so many batches, and then no end marker or one too early"), make: replayKind(contract.FaultReplayTruncate)},

	{name: contract.FaultSilentClear, proof: ghostProof,
		make: func(s scene) fault { return &clearFault{hookFault: s.armed(contract.FaultSilentClear)} }},
	{name: contract.FaultClear,
		proof: "the lab's own subscription sees AllBlocksCleared after a completion of its own, and the engine has nothing left of before",
		make:  func(s scene) fault { return &clearFault{hookFault: s.armed(contract.FaultClear)} }},
	{name: contract.FaultSlow,
		proof: "the tokens of the lab's own completions come further apart, or more unevenly, than before; healed when they come as before",
		make:  func(s scene) fault { return &slowFault{hookFault: s.armed(contract.FaultSlow)} }},
	{name: contract.FaultLeak,
		proof: "/proc shows the process grow with the lab's own completions by half of what they leave behind at least; healed when it has shrunk",
		make:  func(s scene) fault { return &leakFault{hookFault: s.armed(contract.FaultLeak)} }},
	{name: contract.FaultExit, permanent: true, ownsTruth: true,
		proof: "the lab's wait sees the process end with that code, and a connection of its own to the engine's port is refused",
		make:  func(s scene) fault { return &exitFault{hookFault: s.armed(contract.FaultExit)} }},

	{name: contract.FaultHealth,
		proof: "the lab's own GET /health gets 503 or no answer in time, while a completion of its own is served; healed when it answers 200 at once",
		make:  func(s scene) fault { return &healthFault{hookFault: s.armed(contract.FaultHealth)} }},
	{name: contract.FaultListener,
		proof: "a connection of the lab's own to the engine's port is refused, reset or not answered, and one from before is closed or still served; healed when one is served",
		make:  func(s scene) fault { return &listenerFault{hookFault: s.armed(contract.FaultListener)} }},
	{name: contract.FaultErrors,
		proof: "a completion of the lab's own, straight to the engine, gets the status; healed when one is served",
		make:  func(s scene) fault { return &errorsFault{hookFault: s.armed(contract.FaultErrors)} }},
	{name: contract.FaultCutStream,
		proof: "a stream of the lab's own, straight to the engine, ends that way behind that many tokens; healed when one ends whole",
		make:  func(s scene) fault { return &cutFault{hookFault: s.armed(contract.FaultCutStream)} }},
	{name: contract.FaultStaleLoad,
		proof: "the lab opens streams of its own, the engine's truth counts them and its /metrics do not; healed when they do",
		make:  func(s scene) fault { return &loadFault{hookFault: s.armed(contract.FaultStaleLoad)} }},
}

const (
	frozenProof = "the engine's hook says so, and a completion of the lab's own, straight to the engine, does not return while /health answers 200; healed when it returns"
	ghostProof  = "the lab's own subscription and replay hold blocks that the engine, at the same sequence number, does not have"
)

func replayProof(answer string) string {
	return "a replay request of the lab's own gets " + answer + "; healed when it gets everything again"
}

// surprise is a kind that acts on so many batches.
func surprise(kind, how string) faultKind {
	return faultKind{name: kind,
		proof: "the lab's own subscription sees exactly that many batches " + how + ", those that the engine names, and then a clean one",
		make:  func(s scene) fault { return &surpriseFault{hookFault: s.armed(kind)} }}
}

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
		if err != nil && ctx.Err() != nil {
			// The look was cut short by the time being up, which is not its fault.
			return fmt.Errorf("%s: %w", what, context.Cause(ctx))
		}
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
