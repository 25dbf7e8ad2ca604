package disrupt

import (
	"sync"
	"time"

	"fleetdrill/internal/clock"
	"fleetdrill/mockworker/faults"
)

// Keeper applies the faults that act by themselves, without anybody asking: the port's, and an exit at an
// instant. It has no goroutine while there are none.
type Keeper struct {
	faults *faults.Set
	port   *Port
	exit   func(code int)

	mu      sync.Mutex // guards everything below
	timer   *time.Timer
	running sync.WaitGroup // timers that have not been stopped
	closed  bool
}

// NewKeeper makes a keeper; exit is called once, with the code of the fault.
func NewKeeper(f *faults.Set, p *Port, exit func(code int)) *Keeper {
	return &Keeper{faults: f, port: p, exit: exit}
}

// Apply is called after every arming and healing; when it returns, a port that is to be closed is.
func (k *Keeper) Apply() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return
	}
	k.stopTimer()
	again := k.port.Apply()
	if code, now := k.faults.Exit(clock.MonoNs()); now {
		k.exit(code)
	}
	if at, ok := k.faults.ExitAt(clock.MonoNs()); ok && (again == 0 || at < again) {
		again = at
	}
	if again == 0 {
		return
	}
	k.running.Add(1)
	k.timer = time.AfterFunc(time.Duration(max(again-clock.MonoNs(), 0)), func() {
		defer k.running.Done()
		k.Apply()
	})
}

func (k *Keeper) stopTimer() {
	if k.timer != nil && k.timer.Stop() {
		k.running.Done()
	}
	k.timer = nil
}

// Close stops the keeper and waits for what it is doing.
func (k *Keeper) Close() {
	k.mu.Lock()
	k.closed = true
	k.stopTimer()
	k.mu.Unlock()
	k.running.Wait()
}
