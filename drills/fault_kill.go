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

// errPermanent answers whoever wants to heal a killed process.
var errPermanent = errors.New("a killed process does not heal")

// killFault ends a worker's process with SIGKILL: no goodbye, open connections are reset by the kernel.
type killFault struct{ scene }

func (f *killFault) prepare(context.Context) error {
	if id := f.worker.Child.ID(); !id.Alive() {
		return fmt.Errorf("%s (pid %d) is not running before the kill", f.worker.ID, id.PID)
	}
	return nil
}

func (f *killFault) inject(context.Context) error { return f.worker.Child.Kill() }

// confirm waits for the process to be reaped and for its port to refuse a connection: both, since a
// reaped process whose listener was inherited would still serve.
func (f *killFault) confirm(ctx context.Context) (proof, error) {
	select {
	case <-f.worker.Child.Done():
	case <-ctx.Done():
		return proof{}, fmt.Errorf("%s did not exit: %w", f.worker.ID, context.Cause(ctx))
	}
	exit := f.worker.Child.Exit()
	p := proof{evidence: []record.Evidence{seen(exit.MonoNs, "wait saw %s (pid %d) end: %v", f.worker.ID, f.worker.Child.ID().PID, exit)}}
	addr, err := lab.HostPort(f.worker.Ready.HTTP)
	if err != nil {
		return p, err
	}
	if err := awaitRefused(ctx, addr); err != nil {
		return p, err
	}
	p.evidence = append(p.evidence, seen(clock.MonoNs(), "a connection of the lab's own to %s was refused", addr))
	return p, nil
}

func (f *killFault) check(context.Context) ([]record.Evidence, error) { return nil, errPermanent }
func (f *killFault) heal(context.Context) error                       { return errPermanent }
func (f *killFault) confirmHealed(context.Context) ([]record.Evidence, error) {
	return nil, errPermanent
}
func (f *killFault) close() {}

// refusedPoll is the pause between two looks at a port that should refuse.
const refusedPoll = 5 * time.Millisecond

// awaitRefused waits until a connection to addr is refused.
func awaitRefused(ctx context.Context, addr string) error {
	d := net.Dialer{Timeout: time.Second}
	return poll(ctx, refusedPoll, addr+" does not refuse connections", func() (bool, error) {
		conn, err := d.DialContext(ctx, "tcp", addr)
		if err == nil {
			conn.Close()
		}
		return errors.Is(err, syscall.ECONNREFUSED), nil
	})
}
