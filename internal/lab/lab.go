package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"fleetdrill/internal/contract"
	"fleetdrill/internal/supervise"
)

// Options of a lab. The zero value of an optional field means what its comment says.
type Options struct {
	// Exe is the fleetdrill binary; empty = this process's own.
	Exe string
	// Dir takes ready files and logs/NAME.log, one per child. It must exist.
	Dir string
	// Journal records what undoes each start before it happens; nil = no journal (nothing is left to
	// undo when the lab is killed but the kernel's parent-death signal).
	Journal *supervise.Journal
	// Log receives the lab's own messages; nil = none.
	Log *slog.Logger
}

// Lab owns the child processes of one fleet. It is safe for concurrent use.
type Lab struct {
	o    Options
	sup  *supervise.Supervisor
	http *http.Client

	mu    sync.Mutex // guards what Close must end
	close []func() error
}

// New starts a lab without children.
func New(o Options) (*Lab, error) {
	if o.Exe == "" {
		exe, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("finding this binary: %w", err)
		}
		o.Exe = exe
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(filepath.Join(o.Dir, "logs"), 0o755); err != nil {
		return nil, fmt.Errorf("making the lab's log folder: %w", err)
	}
	return &Lab{o: o, sup: supervise.New(supervise.Options{Journal: o.Journal, Log: o.Log}), http: NewHTTPClient()}, nil
}

// Close ends every child and proxy, newest first, and waits for them.
func (l *Lab) Close() error {
	l.mu.Lock()
	undo := l.close
	l.close = nil
	l.mu.Unlock()
	err := l.sup.Close()
	for i := len(undo) - 1; i >= 0; i-- {
		err = errors.Join(err, undo[i]())
	}
	l.http.CloseIdleConnections()
	return err
}

// onClose registers what Close must do after the children have ended.
func (l *Lab) onClose(f func() error) {
	l.mu.Lock()
	l.close = append(l.close, f)
	l.mu.Unlock()
}

// start runs `fleetdrill args...` under the name and waits for its ready file.
func (l *Lab) start(ctx context.Context, name string, args ...string) (*supervise.Child, contract.ReadyFile, error) {
	ready := filepath.Join(l.o.Dir, name+".ready.json")
	if err := os.Remove(ready); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, contract.ReadyFile{}, fmt.Errorf("clearing the ready file of %s: %w", name, err)
	}
	logPath := filepath.Join(l.o.Dir, "logs", name+".log")
	logFile, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, contract.ReadyFile{}, fmt.Errorf("opening the log of %s: %w", name, err)
	}
	// The child has its own copy of the descriptor once started.
	defer logFile.Close()
	child, err := l.sup.Start(supervise.Spec{
		Name: name, Path: l.o.Exe, Args: append(args, "--ready-file", ready),
		Stdout: logFile, Stderr: logFile, GraceStop: 3 * time.Second,
	})
	if err != nil {
		return nil, contract.ReadyFile{}, fmt.Errorf("starting %s: %w", name, err)
	}
	rf, err := awaitReady(ctx, ready, child)
	if err != nil {
		return child, rf, fmt.Errorf("waiting for %s: %w; its log ends: %s", name, err, tail(logPath))
	}
	return child, rf, nil
}

// readyPoll is how often a ready file is looked for. Its writer renames it into place, so a file that
// exists is whole.
const readyPoll = 2 * time.Millisecond

func awaitReady(ctx context.Context, path string, child *supervise.Child) (contract.ReadyFile, error) {
	var rf contract.ReadyFile
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		raw, err := os.ReadFile(path)
		switch {
		case err == nil:
			if err := json.Unmarshal(raw, &rf); err != nil {
				return rf, fmt.Errorf("reading %s: %w", path, err)
			}
			return rf, nil
		case !errors.Is(err, fs.ErrNotExist):
			return rf, fmt.Errorf("reading %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			return rf, fmt.Errorf("not ready: %w", context.Cause(ctx))
		case <-child.Done():
			return rf, fmt.Errorf("it ended before it served: %v", child.Exit())
		case <-tick.C:
		}
	}
}

// tail is the end of a log file, on one line, for an error message.
func tail(path string) string {
	const most = 600
	f, err := os.Open(path)
	if err != nil {
		return "(no log: " + err.Error() + ")"
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size() > most {
		if _, err := f.Seek(-most, io.SeekEnd); err != nil {
			return "(log unreadable)"
		}
	}
	b, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return "(log unreadable: " + err.Error() + ")"
	}
	return strings.Join(strings.Fields(string(b)), " ")
}
