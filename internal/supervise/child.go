package supervise

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"fleetdrill/internal/clock"

	"golang.org/x/sys/unix"
)

// ErrKilled says that a child did not end within its grace and was killed.
var ErrKilled = errors.New("did not end in time and was killed")

// defaultGrace is the time between TERM and KILL of a Spec that names none.
const defaultGrace = 5 * time.Second

// outputDelay bounds the wait for the rest of a child's output after its whole group is gone: only a
// descendant that left the group can still hold the pipe.
const outputDelay = 2 * time.Second

// Spec says how to start a child.
type Spec struct {
	// Name is the child's name in errors and logs, such as w3.
	Name string
	// Path is the executable; Args are its arguments without the program name.
	Path string
	Args []string
	// Env is the whole environment, as KEY=value; nil inherits the lab's.
	Env []string
	// Dir is the working directory; empty inherits the lab's.
	Dir string
	// Stdout and Stderr receive the output; nil discards it. An *os.File is handed to the child itself.
	Stdout, Stderr io.Writer
	// GraceStop is the time between TERM and KILL in Stop; 0 means 5 s.
	GraceStop time.Duration
}

// ExitInfo says how a child ended.
type ExitInfo struct {
	// MonoNs is CLOCK_MONOTONIC at the moment the wait for the child returned, in nanoseconds.
	MonoNs int64
	// Code is the exit code, -1 when a signal ended the child.
	Code int
	// Signal is the signal that ended the child, 0 when it exited by itself.
	Signal syscall.Signal
}

// String is "exit 3" or "killed".
func (e ExitInfo) String() string {
	if e.Signal != 0 {
		return e.Signal.String()
	}
	return fmt.Sprintf("exit %d", e.Code)
}

// Child is one process that the Supervisor started, and its process group. Safe for concurrent use.
type Child struct {
	name  string
	id    ProcID
	grace time.Duration
	cmd   *exec.Cmd

	// mu guards ended and is held while a signal is sent: the pid is reaped only after ended is set, so
	// under mu with ended false the pid and the group are still this child's.
	mu    sync.Mutex
	ended bool

	// done is closed once exit is set and all output has been written.
	done chan struct{}
	exit ExitInfo
}

// ID is the child's pid and start time.
func (c *Child) ID() ProcID { return c.id }

// Done is closed when the child has ended, its group is gone and its output has been written.
func (c *Child) Done() <-chan struct{} { return c.done }

// Exit says how the child ended. It is the zero value until Done is closed.
func (c *Child) Exit() ExitInfo {
	select {
	case <-c.done:
		return c.exit
	default:
		return ExitInfo{}
	}
}

// Signal sends sig to the child alone, not to its group. The error wraps ErrGone when it has ended.
func (c *Child) Signal(sig os.Signal) error {
	s, ok := sig.(syscall.Signal)
	if !ok {
		return fmt.Errorf("signalling %s: %v is not a signal of this system", c.name, sig)
	}
	return c.send(c.id.PID, s)
}

// Kill kills the child and its whole group and does not wait. A child that has ended is no error.
func (c *Child) Kill() error {
	if err := c.send(-c.id.PID, syscall.SIGKILL); err != nil && !errors.Is(err, ErrGone) {
		return err
	}
	return nil
}

func (c *Child) send(pid int, sig syscall.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := ErrGone
	if !c.ended {
		err = syscall.Kill(pid, sig)
	}
	if err != nil {
		return fmt.Errorf("sending %v to %s: %w", sig, c.name, err)
	}
	return nil
}

// Stop ends the child: TERM to its group, KILL after the Spec's grace or when ctx ends, whichever is
// first. It returns after the child has ended; the error wraps ErrKilled if it had to be killed.
func (c *Child) Stop(ctx context.Context) error {
	// A stopped process keeps TERM pending: without CONT a frozen child could only be killed.
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGCONT} {
		if err := c.send(-c.id.PID, sig); err != nil && !errors.Is(err, ErrGone) {
			return err
		}
	}
	grace := time.NewTimer(c.grace)
	defer grace.Stop()
	select {
	case <-c.done:
		return nil
	case <-grace.C:
	case <-ctx.Done():
	}
	if err := c.Kill(); err != nil {
		return err
	}
	<-c.done
	if c.exit.Signal != syscall.SIGKILL {
		return nil // it ended by itself while the kill was on its way
	}
	return fmt.Errorf("stopping %s: %w", c.name, ErrKilled)
}

// wait returns when the child has ended, after having killed what is left of its group, and closes done.
//
// The order keeps every signal on target. The child is first seen to have ended but left a zombie, so
// that its pid still names its group; what remains of the group is killed; then signals from outside are
// shut off; only then is the zombie reaped and the pid free for reuse.
func (c *Child) wait() {
	awaitExit(c.id.PID)
	c.exit.MonoNs = clock.MonoNs()
	c.mu.Lock()
	// The zombie makes the group exist; a failure means that nothing else is left in it.
	_ = syscall.Kill(-c.id.PID, syscall.SIGKILL)
	c.ended = true
	c.mu.Unlock()
	// The error repeats the exit status, or says that an output writer failed, which is the writer's to
	// report.
	_ = c.cmd.Wait()
	c.exit.Code = c.cmd.ProcessState.ExitCode()
	if status, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		c.exit.Signal = status.Signal()
	}
	close(c.done)
}

// awaitExit blocks until the child process pid has ended, and does not reap it.
func awaitExit(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != syscall.EINTR {
			return
		}
	}
}
