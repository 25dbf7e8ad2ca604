package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"fleetdrill/replayer/bench/drive"
)

// Task is what one fresh process measures: exactly one of its fields.
type Task struct {
	Replay   *drive.Spec   `json:"replay,omitempty"`
	Churn    *ChurnSpec    `json:"churn,omitempty"`
	Memory   *MemorySpec   `json:"memory,omitempty"`
	Decision *DecisionSpec `json:"decision,omitempty"`
	Peer     *PeerSpec     `json:"peer,omitempty"`
}

// maxTask bounds a task on standard input, in bytes.
const maxTask = 1 << 20

// RunTask is the fresh process: it reads a Task in JSON and writes its result in JSON.
func RunTask(in io.Reader, out io.Writer) error {
	var t Task
	d := json.NewDecoder(io.LimitReader(in, maxTask))
	d.DisallowUnknownFields()
	if err := d.Decode(&t); err != nil {
		return fmt.Errorf("reading the task of a trial: %w", err)
	}
	result, err := t.run()
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(result)
}

func (t Task) run() (any, error) {
	switch {
	case t.Replay != nil:
		return drive.Trial(*t.Replay)
	case t.Churn != nil:
		return Churn(*t.Churn)
	case t.Memory != nil:
		return Memory(*t.Memory)
	case t.Decision != nil:
		return Decide(*t.Decision)
	case t.Peer != nil:
		return Peer(*t.Peer)
	}
	return nil, fmt.Errorf("the task of a trial is empty")
}

// Runner runs a task in a process of its own and decodes its result.
type Runner func(ctx context.Context, t Task, result any) error

// endWait is how long an interrupted trial is waited for before it is killed.
const endWait = 2 * time.Second

// Processes is a Runner that starts this program again, with the given arguments.
func Processes(args ...string) (Runner, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program to run it again: %w", err)
	}
	return func(ctx context.Context, t Task, result any) error {
		in, err := json.Marshal(t)
		if err != nil {
			return fmt.Errorf("writing the task of a trial: %w", err)
		}
		cmd := exec.CommandContext(ctx, program, args...)
		var out, errs bytes.Buffer
		cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, &errs
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.WaitDelay = endWait
		// A trial that spins must not outlive a command that was killed.
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Run(); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("running a trial: %w: %s", err, strings.TrimSpace(errs.String()))
		}
		if err := json.Unmarshal(out.Bytes(), result); err != nil {
			return fmt.Errorf("reading the result of a trial: %w", err)
		}
		return nil
	}, nil
}
