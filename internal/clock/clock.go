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
func MonoNs() int64 {
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
