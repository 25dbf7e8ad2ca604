package supervise

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"syscall"
)

// ErrDirty says that a journal lists things that an earlier run did and did not take back.
var ErrDirty = errors.New("an earlier run was not cleaned up")

// ErrInUse says that a running lab holds the journal.
var ErrInUse = errors.New("in use by a running lab")

// Journal is the write-ahead cleanup journal. What undoes an action is on disk before the action
// happens, and is struck off after the action has been taken back; so whatever instant the lab dies at,
// the file lists everything that has to be undone. Safe for concurrent use, by one process at a time.
//
// The file holds one JSON object a line: {"add":Undo} or {"strike":ID}.
type Journal struct {
	path string
	boot string

	// mu guards the fields below, and keeps lines whole and in order.
	mu      sync.Mutex
	file    *os.File
	size    int64 // of the whole lines, in bytes
	pending map[int]Undo
	last    int
}

// line is one line of the file: exactly one of the two is set.
type line struct {
	Add    *Undo `json:"add,omitempty"`
	Strike int   `json:"strike,omitempty"`
}

// OpenJournal opens the journal at path, or creates it, and locks it for this process. The error wraps
// ErrDirty if it lists anything (Cleanup takes that back) and ErrInUse if another process has it open.
func OpenJournal(path string) (*Journal, error) {
	j, err := openJournal(path, syscall.LOCK_EX|syscall.LOCK_NB)
	if err != nil {
		return nil, err
	}
	if n := len(j.pending); n > 0 {
		err := fmt.Errorf("opening the cleanup journal %s: %w: %d entries, the last %v", path, ErrDirty, n, j.newestFirst()[0])
		return nil, errors.Join(err, j.Close())
	}
	return j, nil
}

// openJournal opens, locks and reads the journal, and cuts off a torn last line so that the next line
// does not join it.
func openJournal(path string, lock int) (_ *Journal, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("opening the cleanup journal %s: %w", path, err)
		}
	}()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	// The lock goes with the descriptor: the kernel drops it when the process dies.
	if err := flock(f, lock); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	data, err := io.ReadAll(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	pending, last, whole, err := parseJournal(data)
	if err == nil && whole < len(data) {
		err = f.Truncate(int64(whole))
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &Journal{path: path, boot: bootID(), file: f, size: int64(whole), pending: pending, last: last}, nil
}

func flock(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how)
		switch err {
		case syscall.EINTR:
		case syscall.EWOULDBLOCK:
			return ErrInUse
		default:
			return err
		}
	}
}

// parseJournal reads a journal's bytes. whole is the length without a torn last line: one that was being
// written when the machine or the lab died, so that its action did not happen.
func parseJournal(data []byte) (pending map[int]Undo, last, whole int, err error) {
	pending = make(map[int]Undo)
	for n := 1; ; n++ {
		end := bytes.IndexByte(data[whole:], '\n')
		if end < 0 {
			return pending, last, whole, nil
		}
		var l line
		if err := json.Unmarshal(data[whole:whole+end], &l); err != nil {
			return nil, 0, 0, fmt.Errorf("line %d: %w", n, err)
		}
		switch {
		case l.Add != nil:
			pending[l.Add.ID] = *l.Add
			last = max(last, l.Add.ID)
		case l.Strike != 0:
			delete(pending, l.Strike)
		default:
			return nil, 0, 0, fmt.Errorf("line %d: neither an entry nor a strike", n)
		}
		whole += end + 1
	}
}

// ReadJournal lists what the journal at path has pending, newest first, without locking or changing it.
// A missing file has nothing pending.
func ReadJournal(path string) ([]Undo, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the cleanup journal: %w", err)
	}
	pending, _, _, err := parseJournal(data)
	if err != nil {
		return nil, fmt.Errorf("reading the cleanup journal %s: %w", path, err)
	}
	return newestFirst(pending), nil
}

// Cleanup undoes everything pending in the journal at path, newest first, and strikes each off. It goes
// on after a failure; what failed stays pending. It returns what was undone. The error wraps ErrInUse if
// a running lab holds the journal.
func Cleanup(path string) ([]Undo, error) {
	return cleanup(path, syscall.LOCK_EX|syscall.LOCK_NB)
}

func cleanup(path string, lock int) (done []Undo, err error) {
	j, err := openJournal(path, lock)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, u := range j.newestFirst() {
		err := u.Run()
		if err == nil {
			err = j.Strike(u.ID)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		done = append(done, u)
	}
	errs = append(errs, j.Close())
	return done, errors.Join(errs...)
}

// Add writes an entry and returns its id once it is on disk. Call it before the action that it undoes.
func (j *Journal) Add(u Undo) (id int, err error) {
	if err := u.check(); err != nil {
		return 0, fmt.Errorf("adding to the cleanup journal: %w", err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	u.ID, u.Boot = j.last+1, j.boot
	err = j.append(line{Add: &u})
	if err == nil {
		err = j.file.Sync()
	}
	if err != nil {
		return 0, fmt.Errorf("adding to the cleanup journal: %w", err)
	}
	j.last = u.ID
	j.pending[u.ID] = u
	return u.ID, nil
}

// Strike marks the entry as taken back. It does not wait for the disk: an entry that comes back after a
// power cut undoes something that is already undone.
func (j *Journal) Strike(id int) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, ok := j.pending[id]; !ok {
		return fmt.Errorf("striking off the cleanup journal: no pending entry %d", id)
	}
	if err := j.append(line{Strike: id}); err != nil {
		return fmt.Errorf("striking off the cleanup journal: %w", err)
	}
	delete(j.pending, id)
	return nil
}

func (j *Journal) append(l line) error {
	data, err := json.Marshal(l)
	if err != nil {
		return err
	}
	// One write, so that a crash tears at most the last line; what a full disk took is cut off again, so
	// that the next line does not join it.
	n, err := j.file.Write(append(data, '\n'))
	if err != nil {
		return errors.Join(err, j.file.Truncate(j.size))
	}
	j.size += int64(n)
	return nil
}

func (j *Journal) newestFirst() []Undo {
	j.mu.Lock()
	defer j.mu.Unlock()
	return newestFirst(j.pending)
}

func newestFirst(pending map[int]Undo) []Undo {
	var all []Undo
	for _, u := range pending {
		all = append(all, u)
	}
	slices.SortFunc(all, func(a, b Undo) int { return b.ID - a.ID })
	return all
}

// Close unlocks and closes the journal. It empties the file if nothing is pending; otherwise the entries
// stay for Cleanup.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	var err error
	if len(j.pending) == 0 {
		err = j.file.Truncate(0)
	}
	if err = errors.Join(err, j.file.Close()); err != nil {
		return fmt.Errorf("closing the cleanup journal %s: %w", j.path, err)
	}
	return nil
}
