package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"fleetdrill/internal/clock"
)

// long is a grace that no test waits for.
const long = time.Minute

func TestExitInfo(t *testing.T) {
	s := startSupervisor(t, Options{})
	before := clock.MonoNs()
	c, _ := startHelper(t, s, "exit3", 0)
	<-c.Done()
	e := c.Exit()
	if e.Code != 3 || e.Signal != 0 || e.MonoNs < before || e.MonoNs > clock.MonoNs() {
		t.Errorf("exit %+v, want code 3 between start and now", e)
	}

	c, _ = startHelper(t, s, "block", 0)
	if e := c.Exit(); e != (ExitInfo{}) {
		t.Errorf("exit of a running child %+v, want zero", e)
	}
	if err := c.Kill(); err != nil {
		t.Fatal(err)
	}
	<-c.Done()
	if e := c.Exit(); e.Code != -1 || e.Signal != syscall.SIGKILL {
		t.Errorf("exit %+v, want killed", e)
	}
}

func TestStop(t *testing.T) {
	soon, cancel := context.WithCancel(context.Background())
	cancel()
	for _, tt := range []struct {
		name, play string
		ctx        context.Context
		grace      time.Duration
		frozen     bool
		want       error
		signal     syscall.Signal
	}{
		{"ends on TERM", "block", context.Background(), long, false, nil, syscall.SIGTERM},
		{"a frozen child still gets its TERM", "block", context.Background(), long, true, nil, syscall.SIGTERM},
		{"grace over", "stubborn", context.Background(), time.Millisecond, false, ErrKilled, syscall.SIGKILL},
		{"ctx over before the grace", "stubborn", soon, long, false, ErrKilled, syscall.SIGKILL},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, _ := startHelper(t, startSupervisor(t, Options{}), tt.play, tt.grace)
			if tt.frozen {
				if err := c.Signal(syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
				eventually(t, "the child is stopped", func() bool { return proc(t, c.ID().PID).State == 'T' })
			}
			if err := c.Stop(tt.ctx); !errors.Is(err, tt.want) {
				t.Errorf("Stop: %v, want %v", err, tt.want)
			}
			if got := c.Exit().Signal; got != tt.signal {
				t.Errorf("ended by %v, want %v", got, tt.signal)
			}
			if err := c.Stop(context.Background()); err != nil {
				t.Errorf("stopping an ended child: %v", err)
			}
		})
	}
}

func TestGrandchildEndsWithItsParent(t *testing.T) {
	for _, play := range []string{"parent", "orphaning"} {
		t.Run(play, func(t *testing.T) {
			c, line := startHelper(t, startSupervisor(t, Options{}), play, long)
			var grandchild ProcID
			if err := json.Unmarshal([]byte(line), &grandchild); err != nil {
				t.Fatal(err)
			}
			if play == "parent" {
				if err := c.Signal(syscall.SIGKILL); err != nil { // the child alone
					t.Fatal(err)
				}
			}
			<-c.Done()
			eventually(t, "the grandchild is gone", func() bool { return !grandchild.Alive() })
		})
	}
}

// The kernel sends Pdeathsig when the thread that forked ends. A child started from a goroutine whose
// thread dies must not notice.
func TestChildOutlivesTheThreadThatAskedForIt(t *testing.T) {
	s := startSupervisor(t, Options{})
	var c *Child
	var tid int
	var wg sync.WaitGroup
	wg.Go(func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		tid = syscall.Gettid()
		c, _ = startHelper(t, s, "block", long)
	})
	wg.Wait()
	if tid == os.Getpid() {
		t.Skip("the goroutine got the main thread, which never ends")
	}
	eventually(t, "the thread is gone", func() bool {
		_, err := os.Stat("/proc/self/task/" + strconv.Itoa(tid))
		return err != nil
	})
	if err := c.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := c.Exit().Signal; got != syscall.SIGTERM {
		t.Errorf("the child was ended by %v, want by its TERM", got)
	}
}

func TestCloseEndsAllAndIsSafeToRepeat(t *testing.T) {
	s := New(Options{})
	var children []*Child
	for range 4 {
		c, _ := startHelper(t, s, "block", long)
		children = append(children, c)
	}
	var closes sync.WaitGroup
	for range 3 {
		closes.Go(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			for _, c := range children {
				if c.ID().Alive() {
					t.Errorf("%v lives after Close returned", c.ID())
				}
			}
		})
	}
	closes.Wait()
	if _, err := s.Start(Spec{Name: "late", Path: os.Args[0]}); !errors.Is(err, ErrClosed) {
		t.Errorf("Start after Close: %v, want ErrClosed", err)
	}
}

// Starts that race with Close either fail or give a child that Close ends.
func TestStartRacesClose(t *testing.T) {
	s := New(Options{})
	var mu sync.Mutex
	var started []ProcID
	var starts sync.WaitGroup
	for range 4 {
		starts.Go(func() {
			for {
				c, err := s.Start(Spec{Name: "x", Path: os.Args[0], Env: append(os.Environ(), helperEnv+"=block")})
				if err != nil {
					return
				}
				mu.Lock()
				started = append(started, c.ID())
				mu.Unlock()
			}
		})
	}
	eventually(t, "some children run", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(started) >= 4
	})
	s.Close()
	starts.Wait()
	for _, id := range started {
		if id.Alive() {
			t.Errorf("%v lives after Close", id)
		}
	}
}

func TestStartNamesWhatFailed(t *testing.T) {
	_, err := startSupervisor(t, Options{}).Start(Spec{Name: "w3", Path: "/does/not/exist"})
	if !errors.Is(err, os.ErrNotExist) || err.Error() != "starting w3: fork/exec /does/not/exist: no such file or directory" {
		t.Errorf("error %v", err)
	}
}

// A child is in the journal from its start to its end.
func TestChildIsJournaled(t *testing.T) {
	j := openTestJournal(t)
	s := startSupervisor(t, Options{Journal: j})
	c, _ := startHelper(t, s, "block", long)
	pending := j.newestFirst()
	if len(pending) != 1 || pending[0].Kind != UndoKillGroup || pending[0].PID != c.ID().PID || pending[0].Why != "child block" {
		t.Fatalf("pending %v, want the child's group", pending)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if pending := j.newestFirst(); len(pending) != 0 {
		t.Errorf("pending after Close: %v", pending)
	}
}
