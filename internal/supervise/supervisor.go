package supervise

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// ErrClosed says that the Supervisor has been closed and starts nothing more.
var ErrClosed = errors.New("supervisor is closed")

// Options configures a Supervisor. The zero value is usable.
type Options struct {
	// Journal, when set, lists every child's process group from its start to its end, so that the
	// watchdog ends grandchildren too. The caller closes it after the Supervisor.
	Journal *Journal
	// Log receives starts and ends; nil discards.
	Log *slog.Logger
}

// Supervisor starts child processes and ends them. Safe for concurrent use.
type Supervisor struct {
	journal *Journal
	log     *slog.Logger
	// forks hands starts to the one goroutine that forks; quit ends it when no child is left.
	forks    chan fork
	quit     chan struct{}
	forkDone chan struct{}
	// waits counts the goroutines that wait for a child.
	waits sync.WaitGroup

	// mu guards closed and children; it is held over a fork, so that Close sees every child.
	mu       sync.Mutex
	closed   bool
	children map[*Child]struct{}

	// closeOnce runs the one real Close; callers that come later wait for it.
	closeOnce sync.Once
}

type fork struct {
	spec  Spec
	reply chan forked
}

type forked struct {
	child *Child
	err   error
}

// New starts a Supervisor, which holds one OS thread until Close.
func New(o Options) *Supervisor {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Supervisor{
		journal:  o.Journal,
		log:      o.Log,
		forks:    make(chan fork),
		quit:     make(chan struct{}),
		forkDone: make(chan struct{}),
		children: make(map[*Child]struct{}),
	}
	go s.forkLoop()
	return s
}

// forkLoop forks every child from one OS thread. The kernel sends Pdeathsig when the *thread* that
// forked ends, and the Go runtime ends threads as it likes: only a locked one is sure to live until the
// last child is gone. The goroutine ends locked, so its thread dies with it.
func (s *Supervisor) forkLoop() {
	defer close(s.forkDone)
	runtime.LockOSThread()
	for {
		select {
		case f := <-s.forks:
			child, err := s.fork(f.spec)
			f.reply <- forked{child, err}
		case <-s.quit:
			return
		}
	}
}

// Start starts a child in a process group of its own. The kernel kills it when the lab dies.
func (s *Supervisor) Start(spec Spec) (*Child, error) {
	f := fork{spec: spec, reply: make(chan forked, 1)}
	select {
	case s.forks <- f:
	case <-s.forkDone:
		return nil, fmt.Errorf("starting %s: %w", spec.Name, ErrClosed)
	}
	r := <-f.reply
	if r.err != nil {
		return nil, fmt.Errorf("starting %s: %w", spec.Name, r.err)
	}
	return r.child, nil
}

func (s *Supervisor) fork(spec Spec) (*Child, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	cmd := exec.Command(spec.Path, spec.Args...)
	cmd.Env, cmd.Dir = spec.Env, spec.Dir
	cmd.Stdout, cmd.Stderr = spec.Stdout, spec.Stderr
	cmd.WaitDelay = outputDelay
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &Child{name: spec.Name, grace: spec.GraceStop, cmd: cmd, done: make(chan struct{})}
	if c.grace == 0 {
		c.grace = defaultGrace
	}
	undo, err := s.identify(c)
	if err != nil {
		// A child without an identity or a journal entry could be left behind: it does not live.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		return nil, err
	}
	s.children[c] = struct{}{}
	s.waits.Go(func() { s.wait(c, undo) })
	s.log.Debug("child started", "name", c.name, "pid", c.id.PID)
	return c, nil
}

// identify reads the child's start time, possible even if it has already ended because nobody has reaped
// it, and journals its group. It returns the journal entry's id.
func (s *Supervisor) identify(c *Child) (int, error) {
	info, err := ReadProc(c.cmd.Process.Pid)
	if err != nil {
		return 0, err
	}
	c.id = info.ProcID
	if s.journal == nil {
		return 0, nil
	}
	return s.journal.Add(Undo{
		Kind: UndoKillGroup, PID: c.id.PID, StartTime: c.id.StartTime, Session: info.Session,
		Why: "child " + c.name,
	})
}

// wait waits for one child and forgets it.
func (s *Supervisor) wait(c *Child, undo int) {
	c.wait()
	s.log.Debug("child ended", "name", c.name, "pid", c.id.PID, "how", c.exit.String())
	if s.journal != nil {
		if err := s.journal.Strike(undo); err != nil {
			s.log.Error("journal entry of an ended child stays", "name", c.name, "err", err)
		}
	}
	s.mu.Lock()
	delete(s.children, c)
	s.mu.Unlock()
}

// Close stops every child, side by side, each with its own grace, and waits until all have ended. Every
// call returns when that is done. A child that had to be killed is no error.
func (s *Supervisor) Close() error {
	s.closeOnce.Do(func() {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		var stops sync.WaitGroup
		for _, c := range s.living() {
			stops.Go(func() {
				if err := c.Stop(context.Background()); err != nil {
					s.log.Warn("child killed", "name", c.name, "err", err)
				}
			})
		}
		stops.Wait()
		s.waits.Wait()
		close(s.quit)
		<-s.forkDone
	})
	return nil
}

func (s *Supervisor) living() []*Child {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*Child, 0, len(s.children))
	for c := range s.children {
		all = append(all, c)
	}
	return all
}
