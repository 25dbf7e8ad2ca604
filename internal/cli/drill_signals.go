package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"fleetdrill/drills"
)

// collectGrace is what the first signal leaves, after the time for healing, for collecting and judging
// what was seen.
const collectGrace = 15 * time.Second

// twoSignals is a context that the first signal ends in order. The second signal, or the end of the
// grace, ends the process at once: the children go with it, the cleanup journal stays.
func twoSignals() (ctx context.Context, caught func() os.Signal, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	first := make(chan os.Signal, 1)
	go func() {
		var sig os.Signal
		select {
		case sig = <-signals:
		case <-done:
			return
		}
		first <- sig
		cancel()
		select {
		case sig = <-signals:
		case <-time.After(drills.HealGrace + collectGrace):
		case <-done:
			return
		}
		os.Exit(signalCode(sig))
	}()
	caught = func() os.Signal {
		select {
		case sig := <-first:
			return sig
		default:
			return nil
		}
	}
	return ctx, caught, func() {
		signal.Stop(signals)
		close(done)
		cancel()
	}
}

func signalCode(sig os.Signal) int {
	if sig == syscall.SIGTERM {
		return exitSIGTERM
	}
	return exitSIGINT
}
