package faults

import (
	"iter"
	"os"

	"fleetdrill/internal/contract"
)

// Machine are the parameters of the faults of the engine and the process around it.
type Machine struct {
	// Factor multiplies the length of a step; Jitter is the largest share by which steps differ from it.
	Factor, Jitter float64
	// BytesPerRequest is how much memory each finished request leaves behind.
	BytesPerRequest int64
}

// MaxLeak ends a leak, in bytes: enough for any drill, not for the machine.
const MaxLeak = 4 << 30

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
