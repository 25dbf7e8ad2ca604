package drills

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"fleetdrill/drills/record"
	"fleetdrill/internal/clock"
	"fleetdrill/internal/supervise"
)

// statePoll is the pause between two looks at a process's state; a signal acts within a millisecond.
const statePoll = time.Millisecond

// stopFault freezes a worker's process with SIGSTOP: its sockets stay open and the kernel goes on
// accepting connections for it.
type stopFault struct {
	scene
	undo   int // journal entry of the SIGCONT, 0 while there is none
	client *canary
}

func (f *stopFault) prepare(ctx context.Context) error {
	f.client = newCanary(f.worker, f.token)
	if _, err := f.client.complete(ctx); err != nil {
		return fmt.Errorf("before the stop: %w", err)
	}
	return nil
}

// inject has the SIGCONT in the journal first: a lab that dies in between leaves a process that is
// continued without need, never one that stays stopped.
func (f *stopFault) inject(context.Context) error {
	id := f.worker.Child.ID()
	var err error
	f.undo, err = f.journal.Add(supervise.Undo{Kind: supervise.UndoCont, PID: id.PID, StartTime: id.StartTime, Why: f.worker.ID + " is stopped"})
	if err != nil {
		return err
	}
	return f.worker.Child.Signal(syscall.SIGSTOP)
}

func (f *stopFault) confirm(ctx context.Context) (proof, error) {
	e, err := f.awaitState(ctx, "T")
	return proof{evidence: e}, err
}

func (f *stopFault) check(context.Context) ([]record.Evidence, error) {
	state, err := f.state()
	if err != nil {
		return nil, err
	}
	if state != 'T' {
		return nil, fmt.Errorf("%s is in state %c, not stopped any more", f.worker.ID, state)
	}
	return []record.Evidence{seen(clock.MonoNs(), "/proc still shows %s in state T", f.worker.ID)}, nil
}

func (f *stopFault) heal(context.Context) error { return f.worker.Child.Signal(syscall.SIGCONT) }

// confirmHealed wants to see it run and work: a continued process whose step loop is stuck is not healed.
func (f *stopFault) confirmHealed(ctx context.Context) ([]record.Evidence, error) {
	evidence, err := f.awaitState(ctx, "RSD")
	if err != nil {
		return nil, err
	}
	before, err := f.worker.Admin.Truth(ctx)
	if err != nil {
		return evidence, err
	}
	served, err := f.client.complete(ctx)
	if err != nil {
		return evidence, err
	}
	after, err := f.worker.Admin.Truth(ctx)
	if err != nil {
		return evidence, err
	}
	if steps(after) <= steps(before) {
		return evidence, fmt.Errorf("%s makes no step: %d before a completion of the lab's own and %d after", f.worker.ID, steps(before), steps(after))
	}
	evidence = append(evidence, served, seen(after.MonoNs, "%s has gone from step %d to %d", f.worker.ID, steps(before), steps(after)))
	return evidence, f.journal.Strike(f.undo)
}

func (f *stopFault) close() {
	if f.client != nil {
		f.client.close()
	}
}

func (f *stopFault) state() (byte, error) {
	id := f.worker.Child.ID()
	p, err := supervise.ReadProc(id.PID)
	if err != nil {
		return 0, err
	}
	if p.StartTime != id.StartTime {
		return 0, fmt.Errorf("%s has ended", f.worker.ID)
	}
	return p.State, nil
}

// awaitState waits for one of some process states.
func (f *stopFault) awaitState(ctx context.Context, states string) ([]record.Evidence, error) {
	var e []record.Evidence
	err := poll(ctx, statePoll, fmt.Sprintf("%s is not in state %s", f.worker.ID, states), func() (bool, error) {
		s, err := f.state()
		for _, want := range []byte(states) {
			if s == want {
				e = append(e, seen(clock.MonoNs(), "/proc shows %s (pid %d) in state %c", f.worker.ID, f.worker.Child.ID().PID, s))
				return true, nil
			}
		}
		return false, err
	})
	return e, err
}
