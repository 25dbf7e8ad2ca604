package engine

import (
	"fmt"
	"math"
	"time"
)

// Timing says how long a step lasts, and what every request waits beside it. Times are in nanoseconds.
//
// A step takes
//
//	A + B*prefill tokens + C*decoding sequences + D*context of the decoding + E*sum(chunk * context)
//
// where a prefill chunk's context is what its tokens attend to on average: the tokens computed before it and
// half of its own. So a prompt of n tokens pays E*n*n/2 however it is cut. Or, with a Curve, what that says.
type Timing struct {
	A, B, C, D, E float64
	// Curve replaces the five coefficients, which are then 0.
	Curve *Curve
	// Overhead is how long after its arrival a request can be scheduled at the earliest: what a server does
	// around its engine, all in front of it. TTFT and latency grow by it, gaps between tokens do not.
	Overhead int64
	// FirstStep is what the first model pass of an engine takes beyond its time, while kernels are loaded and
	// memory is touched for the first time.
	FirstStep int64
	// Jitter is the share by which steps are unevenly longer or shorter, see Pace.
	Jitter float64
}

// maxOverhead bounds Overhead and FirstStep: they are for tokenising and warming up, not for outages.
const maxOverhead = int64(time.Minute)

func (t Timing) validate() error {
	for i, c := range []float64{t.A, t.B, t.C, t.D, t.E} {
		if c < 0 || math.IsNaN(c) || math.IsInf(c, 0) {
			return fmt.Errorf("timing coefficient %c is %v, must be finite and not negative", 'A'+i, c)
		}
		if c != 0 && t.Curve != nil {
			return fmt.Errorf("timing coefficient %c is %v, must be 0 beside a curve", 'A'+i, c)
		}
	}
	if t.Overhead < 0 || t.Overhead > maxOverhead {
		return fmt.Errorf("request overhead is %d ns, must be from 0 to %d", t.Overhead, maxOverhead)
	}
	if t.FirstStep < 0 || t.FirstStep > maxOverhead {
		return fmt.Errorf("first step's extra is %d ns, must be from 0 to %d", t.FirstStep, maxOverhead)
	}
	if !(t.Jitter >= 0 && t.Jitter < 1) {
		return fmt.Errorf("jitter is %v, must be at least 0 and below 1", t.Jitter)
	}
	if t.Curve != nil {
		return t.Curve.validate()
	}
	return nil
}

// Pass is what one model pass computes.
type Pass struct {
	prefillTokens   int64
	prefillContext2 int64 // twice the sum over chunks of tokens * context, which may be odd
	prefillSeqs     int64
	prefillLargest  int64 // tokens of the largest chunk
	decodeSeqs      int64
	decodeContext   int64
}

// Prefill adds a chunk of n tokens of a prompt, behind computed ones.
func (p *Pass) Prefill(n, computed int) {
	p.prefillTokens += int64(n)
	p.prefillContext2 += int64(n) * int64(2*computed+n)
	p.prefillSeqs++
	p.prefillLargest = max(p.prefillLargest, int64(n))
}

// Decode adds a sequence of so many tokens, of which it computes the last.
func (p *Pass) Decode(tokens int) {
	p.decodeSeqs++
	p.decodeContext += int64(tokens)
}

// duration is the step's length in ns. Each product is rounded on its own: without the conversions a
// compiler may fuse multiply and add, and the same run would differ between machines.
func (t Timing) duration(w Pass) int64 {
	if t.Curve != nil {
		return t.Curve.duration(w)
	}
	d := t.A
	d += float64(t.B * float64(w.prefillTokens))
	d += float64(t.C * float64(w.decodeSeqs))
	d += float64(t.D * float64(w.decodeContext))
	d += float64(t.E * float64(float64(w.prefillContext2)/2))
	return int64(math.Round(d))
}
