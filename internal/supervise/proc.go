package supervise

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrGone says that the process meant is not there any more: it has ended, or its pid now belongs to
// another process. Errors of ProcID methods wrap it.
var ErrGone = errors.New("process is gone")

// ProcID names one process for good: a pid alone may be reused, a pid with its start time is not.
type ProcID struct {
	PID int `json:"pid"`
	// StartTime is field 22 of /proc/PID/stat: clock ticks since boot.
	StartTime uint64 `json:"start_time"`
}

// String is "pid@starttime".
func (id ProcID) String() string { return fmt.Sprintf("%d@%d", id.PID, id.StartTime) }

// ProcInfo is what /proc/PID/stat says about a process.
type ProcInfo struct {
	ProcID
	// Comm is the executable's name, at most 15 bytes.
	Comm string
	// State is the kernel's letter: 'R' running, 'S' sleeping, 'D' disk sleep, 'T' stopped by a signal,
	// 't' stopped by a tracer, 'Z' zombie, 'X' dead, 'I' idle.
	State byte
	// PPID, Group and Session are the parent, the process group and the session.
	PPID, Group, Session int
}

// Ended reports whether the process has ended and only waits to be reaped.
func (p ProcInfo) Ended() bool { return p.State == 'Z' || p.State == 'X' }

// ReadProc reads /proc/PID/stat. The error wraps ErrGone when there is no such process.
func ReadProc(pid int) (ProcInfo, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	// A process that ends between open and read gives ESRCH.
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return ProcInfo{}, fmt.Errorf("reading the state of process %d: %w", pid, ErrGone)
	}
	if err != nil {
		return ProcInfo{}, fmt.Errorf("reading the state of process %d: %w", pid, err)
	}
	info, err := parseStat(data)
	if err != nil {
		return ProcInfo{}, fmt.Errorf("reading the state of process %d: %w", pid, err)
	}
	return info, nil
}

// Positions in the fields that follow the command name: field 3 of the file is the first of them.
const (
	statState     = 0
	statPPID      = 1
	statGroup     = 2
	statSession   = 3
	statStartTime = 19
)

// parseStat parses one line of /proc/PID/stat. The command name may hold blanks, parentheses and line
// ends, so the fields are counted from the last closing parenthesis.
func parseStat(line []byte) (ProcInfo, error) {
	open, end := bytes.IndexByte(line, '('), bytes.LastIndexByte(line, ')')
	if open < 0 || end < open {
		return ProcInfo{}, errors.New("parsing stat: no command name in parentheses")
	}
	fields := bytes.Fields(line[end+1:])
	if len(fields) <= statStartTime {
		return ProcInfo{}, fmt.Errorf("parsing stat: %d fields after the name, want at least %d", len(fields), statStartTime+1)
	}
	if len(fields[statState]) != 1 {
		return ProcInfo{}, fmt.Errorf("parsing stat: state %q is not one letter", fields[statState])
	}
	info := ProcInfo{Comm: string(line[open+1 : end]), State: fields[statState][0]}
	for _, f := range []struct {
		to   *int
		text []byte
	}{
		{&info.PID, bytes.TrimSpace(line[:open])},
		{&info.PPID, fields[statPPID]},
		{&info.Group, fields[statGroup]},
		{&info.Session, fields[statSession]},
	} {
		n, err := strconv.Atoi(string(f.text))
		if err != nil {
			return ProcInfo{}, fmt.Errorf("parsing stat: %w", err)
		}
		*f.to = n
	}
	start, err := strconv.ParseUint(string(fields[statStartTime]), 10, 64)
	if err != nil {
		return ProcInfo{}, fmt.Errorf("parsing stat: start time: %w", err)
	}
	info.StartTime = start
	return info, nil
}

// Alive reports whether the process named runs: a zombie does not, and neither does a later process
// with the same pid.
func (id ProcID) Alive() bool {
	info, err := ReadProc(id.PID)
	return err == nil && info.StartTime == id.StartTime && !info.Ended()
}

// Signal sends sig to the process named. It returns an error wrapping ErrGone, and signals nobody, when
// that process has ended or its pid belongs to another.
func (id ProcID) Signal(sig syscall.Signal) error {
	fd, err := id.open()
	if err != nil {
		return fmt.Errorf("sending %v to process %v: %w", sig, id, err)
	}
	defer unix.Close(fd)
	err = unix.PidfdSendSignal(fd, sig, nil, 0)
	if errors.Is(err, syscall.ESRCH) {
		err = ErrGone
	}
	if err != nil {
		return fmt.Errorf("sending %v to process %v: %w", sig, id, err)
	}
	return nil
}

// open returns a pidfd of the process named. The order matters: the descriptor pins a process first and
// the start time is checked second, so whatever happens later the descriptor means that process.
func (id ProcID) open() (int, error) {
	if id.PID <= 0 {
		return -1, ErrGone
	}
	fd, err := unix.PidfdOpen(id.PID, 0)
	// EINVAL: the pid lives on as a thread id of a later process.
	if errors.Is(err, syscall.ESRCH) || errors.Is(err, syscall.EINVAL) {
		return -1, ErrGone
	}
	if err != nil {
		return -1, fmt.Errorf("opening a pidfd: %w", err)
	}
	if !id.Alive() {
		unix.Close(fd)
		return -1, ErrGone
	}
	return fd, nil
}
