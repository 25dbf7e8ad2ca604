package supervise

import (
	"errors"
	"fmt"
	"io"
	"os/exec"
	"syscall"
)

// orderlyEnd is what the lab writes to its watchdog when it has cleaned up by itself.
const orderlyEnd = "end\n"

// RunWatchdog is the watchdog's whole life. It reads stdin, the pipe from the lab, to its end; if the lab
// did not say that it ended in order, it is gone, and everything pending in the journal is undone, newest
// first, each entry struck off. The error names what could not be undone; it stays in the journal.
func RunWatchdog(stdin io.Reader, journalPath string) error {
	// A read error is an end of the pipe too: without a lab to hear from, cleaning up is the safe side.
	said, _ := io.ReadAll(io.LimitReader(stdin, int64(len(orderlyEnd))))
	if string(said) == orderlyEnd {
		return nil
	}
	// The lock comes free when the kernel has closed the dead lab's files, so waiting for it is short.
	if _, err := cleanup(journalPath, syscall.LOCK_EX); err != nil {
		return fmt.Errorf("cleaning up after the lab: %w", err)
	}
	return nil
}

// Watchdog is the lab's end of its watchdog process.
type Watchdog struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
}

// StartWatchdog starts `selfExe watchdog --journal journalPath`. It is in a session of its own, so that
// neither a ctrl-C in the terminal nor a kill of the lab's process group hits it, and it is nobody's
// ward: no Pdeathsig, no Supervisor. It has no output; what it fails to undo, the journal keeps.
//
// Start it before the first Journal.Add. The caller must Close it, after the Supervisor and the Journal.
func StartWatchdog(selfExe, journalPath string) (*Watchdog, error) {
	cmd := exec.Command(selfExe, "watchdog", "--journal", journalPath)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	// The pipe is close-on-exec: no other child keeps it open when the lab dies.
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("starting the watchdog: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the watchdog: %w", err)
	}
	return &Watchdog{cmd: cmd, pipe: pipe}, nil
}

// Close tells the watchdog that the lab ended in order, so that it undoes nothing, and waits for it. An
// error means that the lab was not guarded: the watchdog had failed or been killed.
func (w *Watchdog) Close() error {
	_, err := io.WriteString(w.pipe, orderlyEnd)
	err = errors.Join(err, w.pipe.Close(), w.cmd.Wait())
	if err != nil {
		return fmt.Errorf("ending the watchdog: %w", err)
	}
	return nil
}
