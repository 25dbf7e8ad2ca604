package engine

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestDuration(t *testing.T) {
	timing := Timing{A: 600_000, B: 2200, C: 2800, D: 3, E: 0.21}
	for _, c := range []struct {
		name string
		pass Pass
		want int64
	}{
		{"nothing but the step itself", Pass{}, 600_000},
		// 600 us + 2,048*2.2 us + 2,048*1,024*0.21 ns = 600,000 + 4,505,600 + 440,401.92
		{"a lone prompt of 2,048", prefilled(2048, 0), 5_546_002},
		// 600 us + 2,048*2.2 us + 2,048*(4,096 + 1,024)*0.21 ns
		{"its third part", prefilled(2048, 4096), 7_307_610},
		// 600 us + 256*2.8 us + 256*1,000*3 ns
		{"256 decoding at 1,000 tokens", Pass{decodeSeqs: 256, decodeContext: 256_000}, 2_084_800},
	} {
		if got := timing.duration(c.pass); got != c.want {
			t.Errorf("%s: %d ns, want %d", c.name, got, c.want)
		}
	}
}

func prefilled(n, computed int) (w Pass) {
	w.Prefill(n, computed)
	return w
}

// TestWorkOfAStep counts what a step computes: a chunk attends to what was computed before and to half of
// itself, a decoding sequence to all of its tokens.
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
		1 + 10*100 + 10*5*1_000_000_000,                // the first ten tokens
		1 + 3*100 + 3*10*1_000_000_000 + 4_500_000_000, // the rest, behind ten
		1 + 10_000 + 14*1_000_000,                      // decoding at 14
		1 + 10_000 + 15*1_000_000,
	} {
		if got := e.Step(0).Until; got != want {
			t.Errorf("step %d lasts %d ns, want %d", i, got, want)
		}
	}
}

// However a prompt is cut, it pays for its context once.
func TestCutsChangeNoContext(t *testing.T) {
	timing := Timing{E: 2}
	for _, cuts := range [][]int{{5000}, {2048, 2048, 904}, {1, 4999}, {2500, 2500}} {
		total, at := int64(0), 0
		for _, n := range cuts {
			total += timing.duration(prefilled(n, at))
			at += n
		}
		if total != 5000*5000 {
			t.Errorf("cut %v: %d ns, want 25,000,000", cuts, total)
		}
	}
}

// A request with overhead waits it out before the scheduler sees it, and an engine with nothing else to do
// waits with it. Gaps between tokens do not grow.
func TestOverheadComesBeforeTheFirstStep(t *testing.T) {
	e, err := New(Config{BlockSize: 4, NumBlocks: 40, MaxNumSeqs: 4, MaxNumBatchedTokens: 10, MaxModelLen: 100,
		Timing: Timing{A: 100, Overhead: 1000}})
	if err != nil {
		t.Fatal(err)
	}
	for i, at := range []int64{0, 400} {
		if err := e.Add(at, Request{ID: strconv.Itoa(i), Tokens: make([]uint32, 3), MaxTokens: 3}); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for r, now := e.Step(0), int64(0); r.Worked; r = e.Step(now) {
		for _, o := range r.Outputs {
			got = append(got, fmt.Sprintf("%s at %d", o.ID, r.Until))
		}
		now = r.Until
	}
	want := []string{"0 at 1100", "0 at 1200", "0 at 1300", "1 at 1500", "1 at 1600", "1 at 1700"}
	if !slices.Equal(got, want) {
		t.Errorf("tokens %v, want %v", got, want)
	}
	if l := e.Load(); l.Steps != 6 {
		t.Errorf("%d model passes, want 6", l.Steps)
	}
}

func TestTimingRefusesNonsense(t *testing.T) {
	for _, bad := range []Timing{{Overhead: -1}, {Overhead: maxOverhead + 1}, {Jitter: 1}, {Jitter: math.NaN()}, {A: 1, Curve: new(Curve)}} {
		if bad.validate() == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
	for _, bad := range []float64{-1, math.NaN(), math.Inf(1)} {
		err := Timing{C: bad}.validate()
		if err == nil || !strings.Contains(err.Error(), "coefficient C") {
			t.Errorf("C = %v: %v", bad, err)
		}
	}
}
