package load

import (
	"time"

	"golang.org/x/sys/unix"

	"fleetdrill/internal/clock"
)

// precise is the last part of a sleep, which the kernel times. Go's own timers wait in epoll, in whole
// milliseconds: at 1,000 requests a second they send 0.55 ms late in the median, the kernel's 0.12 ms,
// and every latency counts from the scheduled instant. It is longer than epoll's rounding and short
// enough that a stopping load does not notice that it cannot be interrupted. Spinning would be closer
// still, and would take a core from the engines and gateways that share the machine.
const precise = 1500 * time.Microsecond

// sleepUntil sleeps until the CLOCK_MONOTONIC instant at, in nanoseconds, or until shortly after one of
// the channels closes.
func sleepUntil(at int64, stopped, cancelled <-chan struct{}) {
	if long := time.Duration(at-clock.MonoNs()) - precise; long > 0 {
		t := time.NewTimer(long)
		defer t.Stop()
		select {
		case <-t.C:
		case <-stopped:
			return
		case <-cancelled:
			return
		}
	}
	ts := unix.NsecToTimespec(at)
	// An absolute instant in the past returns at once; after a signal the same instant is waited for.
	for unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &ts, nil) == unix.EINTR {
	}
}
