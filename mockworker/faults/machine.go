package faults

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"
	"strconv"

	"fleetdrill/internal/contract"
)

// Machine are the parameters of the faults of the engine and the process around it.
type Machine struct {
	// Factor multiplies the length of a step; Jitter is the largest share by which steps differ from it.
	Factor, Jitter float64
	// BytesPerRequest is how much memory each finished request leaves behind.
	BytesPerRequest int64
}

// Bounds of Machine. A factor below 1 makes an engine faster than its profile.
const (
	minFactor, maxFactor = 0.01, 1000
	maxJitter            = 0.99
	maxLeakPerRequest    = 64 << 20
	// MaxLeak ends a leak, in bytes: enough for any drill, not for the machine.
	MaxLeak = 4 << 30
)

// machineKinds are the kinds of this file. All but the clears work without a publisher as well; they do too,
// with nobody to tell.
var machineKinds = []string{contract.FaultSilentClear, contract.FaultClear, contract.FaultSlow, contract.FaultLeak}

// machineParams are the parameters of a kind of this file but for the rank, bound to s; nil for another.
func machineParams(s *Spec) []param {
	lasts := duration("for", &s.For, maxFor)
	switch s.Kind {
	case contract.FaultSilentClear, contract.FaultClear:
		return []param{}
	case contract.FaultSlow:
		return []param{number("factor", &s.Factor, minFactor, maxFactor), number("jitter", &s.Jitter, 0, maxJitter), lasts}
	case contract.FaultLeak:
		return []param{whole("bytes_per_request", &s.BytesPerRequest, 1, maxLeakPerRequest), lasts}
	}
	return nil
}

func (s *Spec) setMachineDefaults() {
	if s.Kind == contract.FaultSlow {
		s.Factor = 1
	}
}

func (s *Spec) checkMachine() error {
	switch {
	case s.Kind == contract.FaultSlow && s.Factor == 1 && s.Jitter == 0:
		return errors.New("parameters factor and jitter are missing: how slow or uneven steps are")
	case s.Kind == contract.FaultLeak && s.BytesPerRequest == 0:
		return errors.New("parameter bytes_per_request is missing: how much memory each request leaves behind")
	}
	return nil
}

// number is a parameter that is a number from least to most.
func number(name string, v *float64, least, most float64) param {
	return param{name, func(raw json.RawMessage) error {
		f, err := strconv.ParseFloat(string(raw), 64)
		if err != nil || !(f >= least && f <= most) {
			return fmt.Errorf("is %s, must be a number from %v to %v", raw, least, most)
		}
		*v = f
		return nil
	}, func() any { return *v }}
}

// ActsOnce says whether a kind acts in the moment it is armed, between two steps, and is done with that.
func ActsOnce(kind string) bool {
	return slices.Contains([]string{contract.FaultRestartPublisher, contract.FaultSilentClear, contract.FaultClear}, kind)
}

// Pace is asked by the step loop of a rank before a step; a factor of 0 is the engine's own pace. open yields
// the ids of its requests: an engine with nothing to do is not slowed.
func (s *Set) Pace(now int64, rank int, open iter.Seq[string]) (factor, jitter float64) {
	if s.none() {
		return 0, 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.find(now, rank, contract.FaultSlow)
	if f == nil {
		return 0, 0
	}
	for range open {
		if f.begin(now) {
			f.evidence.requests(open)
		}
		f.acted++
		break
	}
	return f.spec.Factor, f.spec.Jitter
}

// Leak is asked for each request that leaves a rank's engine. What it leaves behind is held by the fault,
// until that is over.
func (s *Set) Leak(now int64, rank int, request string) {
	if s.none() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.find(now, rank, contract.FaultLeak)
	if f == nil {
		return
	}
	f.leaked = append(f.leaked, touched(f.spec.BytesPerRequest))
	f.leakedBytes += f.spec.BytesPerRequest
	f.actOn(now, "request "+request)
	if f.leakedBytes >= MaxLeak {
		s.end(f, contract.FaultDone)
	}
}

// touched is memory that the process really has: a page that was never written is none.
func touched(n int64) []byte {
	b := make([]byte, n)
	for i := 0; i < len(b); i += os.Getpagesize() {
		b[i] = 1
	}
	return b
}
