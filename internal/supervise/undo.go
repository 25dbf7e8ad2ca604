package supervise

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// UndoKind says what an Undo does.
type UndoKind string

const (
	// UndoKillGroup kills the process group that PID led, also after its leader has gone.
	UndoKillGroup UndoKind = "kill-group"
	// UndoCont sends SIGCONT to the process.
	UndoCont UndoKind = "cont"
	// UndoRemove removes the file or folder at Path.
	UndoRemove UndoKind = "remove"
)

// Undo is one entry of the cleanup journal: how to take back one thing that the lab did.
type Undo struct {
	// ID is given by Journal.Add, from 1 upwards.
	ID   int      `json:"id"`
	Kind UndoKind `json:"kind"`
	// PID and StartTime name the process, for kill-group the group's leader.
	PID       int    `json:"pid,omitempty"`
	StartTime uint64 `json:"start_time,omitempty"`
	// Session is the session of the group, for kill-group: it tells a leaderless group of ours from one
	// of somebody else. 0 means that a group without its leader is left alone.
	Session int `json:"session,omitempty"`
	// Boot is the boot in which the pids mean something; Journal.Add fills it in.
	Boot string `json:"boot,omitempty"`
	// Path is absolute and at least two levels deep, for remove.
	Path string `json:"path,omitempty"`
	// Why tells a person what the entry is about.
	Why string `json:"why"`
}

// String is "kill-group 4711@99 (child w3)".
func (u Undo) String() string {
	what := u.Path
	if u.Kind != UndoRemove {
		what = ProcID{u.PID, u.StartTime}.String()
	}
	return fmt.Sprintf("%s %s (%s)", u.Kind, what, u.Why)
}

// check refuses an entry that could not be undone, before the action that needs it happens.
func (u Undo) check() error {
	switch u.Kind {
	case UndoKillGroup, UndoCont:
		if u.PID <= 1 || u.StartTime == 0 {
			return fmt.Errorf("%s needs a pid above 1 and a start time", u.Kind)
		}
	case UndoRemove:
		if !filepath.IsAbs(u.Path) || strings.Count(filepath.Clean(u.Path), "/") < 2 {
			return fmt.Errorf("remove needs an absolute path at least two levels deep, not %q", u.Path)
		}
	default:
		return fmt.Errorf("unknown kind %q", u.Kind)
	}
	return nil
}

// Run undoes the entry. What is already undone is no error: the process is gone, its pid belongs to
// another, the machine was booted since, the path does not exist.
func (u Undo) Run() error {
	if err := u.run(); err != nil && !errors.Is(err, ErrGone) {
		return fmt.Errorf("undoing %v: %w", u, err)
	}
	return nil
}

func (u Undo) run() error {
	if err := u.check(); err != nil {
		return err
	}
	if u.Kind == UndoRemove {
		return os.RemoveAll(u.Path)
	}
	// Pids and start times begin anew with every boot.
	if u.Boot != "" && u.Boot != bootID() {
		return ErrGone
	}
	if u.Kind == UndoCont {
		return ProcID{u.PID, u.StartTime}.Signal(syscall.SIGCONT)
	}
	return u.killGroup()
}

// killGroup kills the group that PID led. Between the check and the kill, a stranger could be hit only if
// the group ended and the kernel went through the whole range of pids.
func (u Undo) killGroup() error {
	if err := u.findGroup(); err != nil {
		return err
	}
	if err := syscall.Kill(-u.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("killing the group: %w", err)
	}
	return nil
}

// findGroup returns nil if the group still has a living process: its leader, or, because the kernel kills
// the leader together with the lab, one that the leader left behind. The latter is ours if it is in the
// group and session recorded and is not older than the leader.
func (u Undo) findGroup() error {
	leader, err := ReadProc(u.PID)
	switch {
	case err == nil && leader.StartTime != u.StartTime:
		return ErrGone // the kernel gives a pid anew only when no group of that number is left
	case err == nil && !leader.Ended() && leader.Group != u.PID:
		return fmt.Errorf("process %v leads no group", leader.ProcID)
	case err == nil && !leader.Ended():
		return nil
	case err != nil && !errors.Is(err, ErrGone):
		return err
	}
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return fmt.Errorf("looking for the group: %w", err)
	}
	for _, p := range procs {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		m, err := ReadProc(pid)
		if err == nil && m.Group == u.PID && m.Session == u.Session && m.StartTime >= u.StartTime && !m.Ended() {
			return nil
		}
	}
	return ErrGone
}

// bootID names the running boot; empty when the kernel does not say.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
