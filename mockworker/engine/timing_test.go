package engine

import (
	"math"
	"strings"
	"testing"
)

func TestDuration(t *testing.T) {
	timing := Timing{A: 600_000, B: 2200, C: 2800, D: 3, E: 0.21}
	for _, c := range []struct {
		name string
		work work
		want int64
	}{
		{"nothing but the step itself", work{}, 600_000},
		// 600 us + 2,048*2.2 us + 2,048^2*0.21 ns = 600,000 + 4,505,600 + 880,803.84
		{"a lone prompt of 2,048", work{prefillTokens: 2048, prefillContext: 2048 * 2048}, 5_986_404},
		// 600 us + 256*2.8 us + 256*1,000*3 ns
		{"256 decoding at 1,000 tokens", work{decodeSeqs: 256, decodeContext: 256_000}, 2_084_800},
	} {
		if got := timing.duration(c.work); got != c.want {
			t.Errorf("%s: %d ns, want %d", c.name, got, c.want)
		}
	}
}

// TestWorkOfAStep counts what a step computes: a chunk attends to what is computed once it is, a decoding
// sequence to all of its tokens.
func TestWorkOfAStep(t *testing.T) {
	e, err := New(Config{BlockSize: 4, NumBlocks: 40, MaxNumSeqs: 4, MaxNumBatchedTokens: 10, MaxModelLen: 100,
		Timing: Timing{A: 1, B: 100, C: 10_000, D: 1_000_000, E: 1_000_000_000}})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Add(0, Request{ID: "a", Tokens: make([]uint32, 13), MaxTokens: 5}); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int64{
		1 + 10*100 + 10*10*1_000_000_000, // the first ten tokens
		1 + 3*100 + 3*13*1_000_000_000,   // the rest, behind ten
		1 + 10_000 + 14*1_000_000,        // decoding at 14
		1 + 10_000 + 15*1_000_000,
	} {
		if got := e.Step(0).Until; got != want {
			t.Errorf("step %d lasts %d ns, want %d", i, got, want)
		}
	}
}

func TestTimingRefusesNonsense(t *testing.T) {
	for _, bad := range []float64{-1, math.NaN(), math.Inf(1)} {
		err := Timing{C: bad}.validate()
		if err == nil || !strings.Contains(err.Error(), "coefficient C") {
			t.Errorf("C = %v: %v", bad, err)
		}
	}
}
