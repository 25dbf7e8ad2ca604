// Package clock reads the machine's one clock.
//
// Every process of a fleet stamps what it reports with CLOCK_MONOTONIC, which all processes of a
// machine share, so that a sample of the gateway, a journal entry of an engine and a fault of the lab
// can be put on one time line without estimating offsets. Deciding code never calls this package: it
// is handed `now` as an argument.
package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// MonoNs is CLOCK_MONOTONIC in nanoseconds. It is comparable between processes of one machine, never
// between machines, and does not advance while the machine is suspended.
//
// A program asks several times per request and token, and the system call for it costs 300 ns. Go's own
// monotonic clock is the same one, read without a call but without its origin; so the origin is looked up
// once. That is right to the time between two readings, some 100 ns, and never behind the true clock.
func MonoNs() int64 { return origin.mono + int64(time.Since(origin.at)) }

// reading is one instant on both clocks.
type reading struct {
	at   time.Time // with Go's monotonic reading
	mono int64     // CLOCK_MONOTONIC ns, read just after
}

// origin is never written again.
var origin = closest(8)

// closest is the best of n attempts to read both clocks at once: whoever is interrupted between the two
// readings would be off for good.
func closest(n int) (best reading) {
	least := time.Duration(1<<63 - 1)
	for range n {
		r := reading{at: time.Now(), mono: readMono()}
		if apart := time.Since(r.at); apart < least {
			best, least = r, apart
		}
	}
	return best
}

func readMono() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		// The call cannot fail with a valid clock id and pointer; a silent zero would corrupt a verdict.
		panic("clock: CLOCK_MONOTONIC unreadable: " + err.Error())
	}
	return ts.Nano()
}

// Wall is the wall clock as RFC 3339 with nanoseconds, in UTC: for people and log correlation, never
// for measuring.
func Wall() string { return time.Now().UTC().Format(time.RFC3339Nano) }
