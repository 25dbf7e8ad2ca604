package drills

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"fleetdrill/drills/record"
	"fleetdrill/internal/clock"
	"fleetdrill/internal/lab"
)

// fault is one way of breaking a worker. The runner walks it through its steps in this order: prepare,
// inject, confirm, then hold, and for faults that heal, heal and confirm healed. A step that fails makes
// the run invalid: what was not seen to happen proves nothing.
//
// Confirmation is by the lab's own eyes (wait, /proc, a connection of its own), never by the target's
// word.
type fault interface {
	// prepare checks that the target is fit to be broken. Nothing has been changed yet.
	prepare() error
	// inject does it and returns as soon as the act is done.
	inject() error
	// confirm waits for proof that it is in force.
	confirm(ctx context.Context) ([]record.Evidence, error)
	// heal undoes it and confirmHealed waits for proof of that; a fault that never heals has permanent
	// true and neither is called.
	heal() error
	confirmHealed(ctx context.Context) ([]record.Evidence, error)
	permanent() bool
	// ownsTruth says that the engine cannot answer for itself while the fault is in force.
	ownsTruth() bool
}

// newFault makes the fault of a kind aimed at a worker.
func newFault(kind string, w *lab.Worker) (fault, error) {
	switch kind {
	case "kill":
		return &killFault{worker: w}, nil
	}
	return nil, fmt.Errorf("fault kind %q cannot be injected here", kind)
}

// killFault ends a worker's process with SIGKILL: no goodbye, open connections are reset by the kernel.
type killFault struct {
	worker *lab.Worker
}

func (f *killFault) permanent() bool { return true }
func (f *killFault) ownsTruth() bool { return true }

func (f *killFault) prepare() error {
	if id := f.worker.Child.ID(); !id.Alive() {
		return fmt.Errorf("%s (pid %d) is not running before the kill", f.worker.ID, id.PID)
	}
	return nil
}

func (f *killFault) inject() error { return f.worker.Child.Kill() }

// confirm waits for the process to be reaped and for its port to refuse a connection: both, since a
// reaped process whose listener was inherited would still serve.
func (f *killFault) confirm(ctx context.Context) ([]record.Evidence, error) {
	select {
	case <-f.worker.Child.Done():
	case <-ctx.Done():
		return nil, fmt.Errorf("%s did not exit: %w", f.worker.ID, context.Cause(ctx))
	}
	exit := f.worker.Child.Exit()
	evidence := []record.Evidence{{MonoNs: exit.MonoNs, What: fmt.Sprintf("wait saw %s (pid %d) end: %v", f.worker.ID, f.worker.Child.ID().PID, exit)}}
	addr, err := lab.HostPort(f.worker.Ready.HTTP)
	if err != nil {
		return evidence, err
	}
	if err := awaitRefused(ctx, addr); err != nil {
		return evidence, err
	}
	return append(evidence, record.Evidence{MonoNs: clock.MonoNs(), What: "a connection of the lab's own to " + addr + " was refused"}), nil
}

func (f *killFault) heal() error { return errors.New("a killed process does not heal") }

func (f *killFault) confirmHealed(context.Context) ([]record.Evidence, error) {
	return nil, errors.New("a killed process does not heal")
}

// refusedPoll is the pause between two looks at a port that should refuse.
const refusedPoll = 5 * time.Millisecond

// awaitRefused waits until a connection to addr is refused.
func awaitRefused(ctx context.Context, addr string) error {
	d := net.Dialer{Timeout: time.Second}
	for {
		conn, err := d.DialContext(ctx, "tcp", addr)
		if errors.Is(err, syscall.ECONNREFUSED) {
			return nil
		}
		if err == nil {
			conn.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not refuse connections: %w", addr, context.Cause(ctx))
		case <-time.After(refusedPoll):
		}
	}
}
