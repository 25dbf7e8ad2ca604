package engine

import (
	"fmt"
	"math"
)

// Timing holds the five coefficients of a step's duration, in nanoseconds:
//
//	A + B*prefill tokens + C*decoding sequences + D*context of the decoding + E*sum(chunk * context)
//
// where the context of a prefill chunk is the number of tokens computed once the chunk is.
type Timing struct{ A, B, C, D, E float64 }

func (t Timing) validate() error {
	for i, c := range []float64{t.A, t.B, t.C, t.D, t.E} {
		if c < 0 || math.IsNaN(c) || math.IsInf(c, 0) {
			return fmt.Errorf("timing coefficient %c is %v, must be finite and not negative", 'A'+i, c)
		}
	}
	return nil
}

// work is what one step computes.
type work struct {
	prefillTokens  int64
	prefillContext int64 // sum over chunks of tokens * context
	decodeSeqs     int64
	decodeContext  int64
}

// duration is the step's length in ns. Each product is rounded on its own: without the conversions a
// compiler may fuse multiply and add, and the same run would differ between machines.
func (t Timing) duration(w work) int64 {
	d := t.A
	d += float64(t.B * float64(w.prefillTokens))
	d += float64(t.C * float64(w.decodeSeqs))
	d += float64(t.D * float64(w.decodeContext))
	d += float64(t.E * float64(w.prefillContext))
	return int64(math.Round(d))
}
