package drills

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"fleetdrill/internal/clock"
	"fleetdrill/internal/lab"
	"fleetdrill/internal/supervise"
)

// Each lab has a cleanup journal of its own, named after its process, so that labs run side by side.
const (
	journalName    = "cleanup-%d-%d-%d.jsonl" // pid, start time, instant
	journalPattern = "cleanup-*.jsonl"
)

// openJournal makes this lab's journal.
func openJournal(state string) (*supervise.Journal, string, error) {
	self, err := supervise.ReadProc(os.Getpid())
	if err != nil {
		return nil, "", err
	}
	path := filepath.Join(state, fmt.Sprintf(journalName, self.PID, self.StartTime, clock.MonoNs()))
	j, err := supervise.OpenJournal(path)
	return j, path, err
}

// DirtyJournals are the journals of labs that are gone and left something to undo.
func DirtyJournals() ([]string, error) {
	state, err := lab.StateDir()
	if err != nil {
		return nil, err
	}
	paths, err := filepath.Glob(filepath.Join(state, journalPattern))
	if err != nil {
		return nil, fmt.Errorf("looking for cleanup journals: %w", err)
	}
	var dirty []string
	for _, p := range paths {
		left, err := leftBehind(p)
		if err != nil {
			return nil, err
		}
		if left {
			dirty = append(dirty, p)
		}
	}
	return dirty, nil
}

// leftBehind reports whether a journal's lab is gone with entries pending. A journal without any is only
// a file in the way: its watchdog did the work.
func leftBehind(path string) (bool, error) {
	var owner supervise.ProcID
	var instant int64
	if _, err := fmt.Sscanf(filepath.Base(path), journalName, &owner.PID, &owner.StartTime, &instant); err == nil && owner.Alive() {
		return false, nil
	}
	j, err := supervise.OpenJournal(path)
	switch {
	case errors.Is(err, supervise.ErrInUse): // its watchdog is at work
		return false, nil
	case errors.Is(err, supervise.ErrDirty):
		return true, nil
	case err != nil:
		return false, err
	}
	return false, errors.Join(j.Close(), os.Remove(path))
}

// Cleanup undoes what labs that are gone have left behind, and says what it did.
func Cleanup(say func(string)) error {
	dirty, err := DirtyJournals()
	if err != nil {
		return err
	}
	if len(dirty) == 0 {
		say("nothing to clean up")
	}
	var errs []error
	for _, p := range dirty {
		done, err := supervise.Cleanup(p)
		for _, u := range done {
			say("undone: " + u.String())
		}
		if err == nil {
			err = os.Remove(p)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
