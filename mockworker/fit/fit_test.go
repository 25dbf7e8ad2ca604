package fit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"fleetdrill/internal/rng"
	"fleetdrill/internal/shared"
	"fleetdrill/mockworker/engine"
)

// recorded is a run made by an engine of known timing, in place of a real one.
func recorded(t *testing.T, n int, timing engine.Timing) *Run {
	t.Helper()
	draw := rng.Stream(1, "recorded")
	r := &Run{Model: "made", NumBlocks: 400, BlockSize: 16, MaxNumSeqs: 8, MaxNumBatchedTokens: 256, ReserveFull: true}
	at := int64(0)
	for i := range n {
		r.Requests = append(r.Requests, Request{ID: fmt.Sprint(i), Input: 20 + draw.IntN(600), Output: 10 + draw.IntN(60), Queued: at})
		at += int64(draw.ExpFloat64() * 150e6)
	}
	s, _ := SizesOf(r, Sizes{})
	sim, err := NewSimulator(r, s)
	if err != nil {
		t.Fatal(err)
	}
	times, err := sim.Run(timing)
	if err != nil {
		t.Fatal(err)
	}
	for i := range times {
		q := &r.Requests[i]
		q.First, q.Last = q.Queued+times[i].TTFT, q.Queued+times[i].Latency
	}
	return r
}

var known = engine.Timing{A: 8e6, B: 60e3, C: 400e3, D: 500, E: 20, Overhead: 12e6, FirstStep: 100e6}

// A run of the mock engine itself is found again, also by its first part alone.
func TestFitFindsWhatMadeTheRun(t *testing.T) {
	r := recorded(t, 80, known)
	for on, bound := range map[int]float64{0: 0.03, 40: 0.08} {
		f, err := Fit(context.Background(), r, Options{On: on})
		if err != nil {
			t.Fatal(err)
		}
		if w := Worst(f.All); math.Abs(w.Error) > bound {
			t.Errorf("fitted on %d: %s is off by %.1f %%", on, w.Figure, w.Error*100)
		}
		if on > 0 && len(f.Seen) != len(f.All) {
			t.Errorf("%d figures of the seen, %d of all", len(f.Seen), len(f.All))
		}
	}
}

func TestEqualFitsAreEqual(t *testing.T) {
	r := recorded(t, 20, known)
	a, err := Fit(context.Background(), r, Options{Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	b, err := Fit(context.Background(), r, Options{Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	if a.Timing != b.Timing || a.Trials != b.Trials {
		t.Errorf("%+v and %+v", a.Timing, b.Timing)
	}
}

func TestFitEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Fit(ctx, recorded(t, 5, known), Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestFitRefuses(t *testing.T) {
	r := recorded(t, 5, known)
	for _, on := range []int{-1, 6} {
		if _, err := Fit(context.Background(), r, Options{On: on}); err == nil || !strings.Contains(err.Error(), "the run has 5") {
			t.Errorf("fit on %d: %v", on, err)
		}
	}
	if _, err := Score(r, Options{Sizes: Sizes{NumBlocks: 10}}, known); !errors.Is(err, engine.ErrNeverFits) {
		t.Errorf("a pool of ten blocks: %v", err)
	}
}

// What the run did not record is assumed, and said.
func TestSizes(t *testing.T) {
	r := &Run{BlockSize: 32, Requests: []Request{{Input: 90, Output: 10}, {Input: 10, Output: 1}}}
	s, assumed := SizesOf(r, Sizes{MaxNumSeqs: 10})
	if want := (Sizes{NumBlocks: 41, BlockSize: 32, MaxNumSeqs: 10, MaxNumBatchedTokens: 2048}); s != want {
		t.Errorf("%+v, want %+v", s, want)
	}
	if len(assumed) != 2 || !strings.HasPrefix(assumed[0], "max_num_batched_tokens 2048") || !strings.HasPrefix(assumed[1], "num_blocks 41") {
		t.Errorf("assumed %q", assumed)
	}
}

func TestFigures(t *testing.T) {
	times := []Times{{TTFT: 1e9, Latency: 1e9, Output: 1}, {TTFT: 2e9, Latency: 6e9, Output: 5}, {TTFT: 3e9, Latency: 5e9, Output: 3}, {TTFT: 4e9, Latency: 10e9, Output: 3}}
	got := figures(times)
	// TPOT has three values, 1, 1 and 3; the p90 of TTFT lies at 2.7 of 0..3.
	want := []float64{2.5, 2.5, 3.7, 3.97, 5.0 / 3, 1, 2.6, 2.96, 5.5, 5.5, 8.8, 9.88}
	for i := range want {
		if math.Abs(got[i]-want[i]) > 1e-9 {
			t.Errorf("figure %d is %v, want %v", i, got[i], want[i])
		}
	}
	slow := slices.Clone(times)
	slow[3].Latency = 20e9
	if w := Worst(Compare(times, slow)); w.Figure != "TPOT p99" {
		t.Errorf("worst is %+v", w)
	}
}

// The simplex finds the minimum of a bent valley (Rosenbrock).
func TestMinimise(t *testing.T) {
	valley := func(x []float64) float64 { a, b := 1-x[0], x[1]-x[0]*x[0]; return a*a + 100*b*b }
	v := minimise(valley, []float64{-1.2, 1}, []float64{0.5, 0.5}, 400, 1e-12)
	if math.Abs(v.x[0]-1) > 1e-3 || math.Abs(v.x[1]-1) > 1e-3 {
		t.Errorf("ended at %v", v.x)
	}
	calls := 0
	minimise(func(x []float64) float64 { calls++; return x[0] }, []float64{1}, []float64{1}, 50, 0)
	if calls > 55 {
		t.Errorf("%d calls of 50", calls)
	}
}

func TestProfileOfAFit(t *testing.T) {
	r := recorded(t, 10, known)
	f, err := Score(r, Options{}, rounded(engine.Timing{A: 8.123456e6, B: 1234567, C: 1e-3, D: 0.123456, E: 12, Overhead: 1234567, FirstStep: 9}))
	if err != nil {
		t.Fatal(err)
	}
	report := f.Report("run", "mine")
	path := t.TempDir() + "/mine.yaml"
	if err := os.WriteFile(path, report.YAML(), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := engine.LoadProfile(path)
	if err != nil {
		t.Fatal(err)
	}
	if p.Timing() != f.Timing || p.NumBlocks.Int() != 400 || p.Name != "mine" {
		t.Errorf("%+v comes back as %+v", f.Timing, p.Timing())
	}
	if f.Timing.A != 8.123e6 || f.Timing.D != 0.1235 {
		t.Errorf("%+v", f.Timing)
	}
}

// Every built-in profile of a recorded run reproduces it to within what was recorded when it was fitted,
// and a little for later changes of the engine.
func TestBuiltinProfilesReproduceTheirRuns(t *testing.T) {
	for _, c := range []struct {
		run, profile string
		bound        float64
	}{
		{"RTX4090_Llama-3.1-8B", "rtx4090-llama-3.1-8b", 0.030},
		{"RTXPRO6000_Llama-3.1-8B", "rtxpro6000-llama-3.1-8b", 0.015},
		{"RTXPRO6000_Qwen3-32B", "rtxpro6000-qwen3-32b", 0.015},
	} {
		r, err := Read(os.DirFS(shared.Path(t, "fidelity/"+c.run)))
		if err != nil {
			t.Fatal(err)
		}
		p, err := engine.LoadProfile(c.profile)
		if err != nil {
			t.Fatal(err)
		}
		f, err := Score(r, Options{}, p.Timing())
		if err != nil {
			t.Fatal(err)
		}
		if s := (Sizes{p.NumBlocks.Int(), p.BlockSize.Int(), p.MaxNumSeqs.Int(), p.MaxNumBatchedTokens.Int()}); s != f.Sizes {
			t.Errorf("%s is of sizes %+v, the run %+v", c.profile, s, f.Sizes)
		}
		if w := Worst(f.All); math.Abs(w.Error) > c.bound {
			t.Errorf("%s: %s is off by %.1f %%, bound %.1f %%", c.profile, w.Figure, w.Error*100, c.bound*100)
		}
	}
}
