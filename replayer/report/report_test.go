package report

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"fleetdrill/drills/report/pagetest"
	"fleetdrill/internal/rng"
	"fleetdrill/replayer/result"
)

const ms = int64(1e6)

// made is a replay of 600 requests over five minutes whose figures depend on how much the policy hits.
func made(policy string, hit float64, invalid ...string) result.Run {
	info := result.Info{Trace: "conversation_trace.jsonl", RowRange: "0-599", Rows: 600, Mode: result.Sim, Policy: policy, Workers: 4,
		WorkerIDs: []string{"w1", "w2", "w3", "w4"}, Speed: 3, Arrivals: "spread", Seed: 1, SLO: result.DefaultSLO(), Profile: "replay-default",
		KVIndex: "maptree", KVBlocks: 42258, BlockSize: 16, Hash: "chain64", Reasons: invalid}
	draw := rng.Stream(1, policy)
	var rs []result.Request
	for i := range 600 {
		r := result.Request{N: i, Row: i, ScheduledNs: int64(i) * 500 * ms, TTFTNs: int64(draw.ExpFloat64()*300*(1.2-hit)) * ms, PromptTokens: 4096,
			Cached: int(4096*hit*draw.Float64()) / 16 * 16, OutputTokens: 3, MaxTokens: 3, Best: 2048, Worker: info.WorkerIDs[draw.IntN(4)], Outcome: result.OK,
			GapsNs: []int64{int64(draw.IntN(40)+5) * ms, int64(draw.IntN(40)+5) * ms}, Pooled: 2048, Unbounded: 3000, StalenessNs: -1}
		r.Predicted, r.Held, r.E2ENs = r.Cached, r.Cached, r.TTFTNs+r.GapsNs[0]+r.GapsNs[1]
		if i > 250 && i < 270 { // an outage: nobody answered
			r = result.Request{N: i, Row: i, ScheduledNs: r.ScheduledNs, PromptTokens: 4096, Outcome: result.Failed, Error: "status 503: no worker", Predicted: -1, Best: -1, Held: -1, StalenessNs: -1}
		}
		rs = append(rs, r)
	}
	return result.Run{Summary: result.Summarize(info, rs), Requests: rs}
}

func runs() []result.Run {
	return []result.Run{made("cache_aware", 0.9), made("round_robin", 0.3, "send lag p99 30.0 ms, want at most 10 ms"), made("least_load", 0.4)}
}

const goldenPage = "testdata/report.html"

func TestPage(t *testing.T) {
	var b strings.Builder
	if err := Write(&b, runs()); err != nil {
		t.Fatal(err)
	}
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(goldenPage, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(goldenPage)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), b.String()); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}

func TestPageInABrowser(t *testing.T) {
	path, err := filepath.Abs(goldenPage)
	if err != nil {
		t.Fatal(err)
	}
	pagetest.Check(t, pagetest.Start(t), path, 60, pagetest.Everyone())
}

func TestPageOfAReplayThatSentNothing(t *testing.T) {
	var b strings.Builder
	run := result.Run{Summary: result.Summarize(result.Info{Policy: "cache_aware", Reasons: []string{"it ended after 0 of 9 requests"}}, nil)}
	if err := Write(&b, []result.Run{run}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "it ended after 0 of 9 requests") || strings.Contains(b.String(), "NaN") || strings.Contains(b.String(), "Inf") {
		t.Error(b.String())
	}
}

func TestFiguresOverTime(t *testing.T) {
	at := func(s float64, worker string, ttft int64, cached int) result.Request {
		return result.Request{ScheduledNs: int64(s * 1e9), Worker: worker, TTFTNs: ttft * ms, Cached: cached, PromptTokens: 100, Outcome: result.OK}
	}
	requests := []result.Request{at(0, "w1", 100, 10), at(0.5, "w1", 300, 20), at(1.9, "w2", 900, 0), at(4.1, "w2", 200, 50)}
	requests[3].Outcome = result.Failed
	b := bins{2, 3}
	got := measure(b, result.DefaultSLO(), []string{"w1", "w2"}, requests)
	nan := math.NaN()
	want := overTime{offered: []float64{1.5, 0, 0.5}, good: []float64{1, 0, 0}, ttft: []float64{300, nan, 200}, hit: []float64{0.1, nan, nan}, balance: []float64{4.0 / 3, nan, 2}}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(overTime{}), cmpopts.EquateNaNs()); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}

func TestBins(t *testing.T) {
	for window, want := range map[float64]bins{0: {0.1, 1}, 5.9: {0.1, 60}, 60: {1, 61}, 1179: {20, 59}, 1e9: {3600, 277778}} {
		if got := newBins(window); got != want {
			t.Errorf("%g s: %+v, want %+v", window, got, want)
		}
	}
}

// A distribution rises from its smallest value to its largest, and at every point so many values are below.
func TestCDF(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(0, 100), 1, 300).Draw(rt, "values")
		line := cdf(slices.Clone(values))
		last := xy{-1, -1}
		for _, p := range line {
			below := 0
			for _, v := range values {
				if v <= p.x {
					below++
				}
			}
			if p.x < last.x || p.y < last.y || float64(below) < p.y*float64(len(values)-1) {
				rt.Fatalf("%+v after %+v, %d of %d below", p, last, below, len(values))
			}
			last = p
		}
		if line[0].x != slices.Min(values) || last.x != slices.Max(values) || last.y != 1 {
			rt.Fatalf("from %+v to %+v", line[0], last)
		}
	})
}

// Everything drawn lies within its picture, with labels that are few and rise.
func TestEverythingIsWithinThePicture(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var points []xy
		for range rapid.IntRange(0, 20).Draw(rt, "points") {
			y := rapid.Float64Range(0, 1e6).Draw(rt, "y")
			if rapid.IntRange(0, 5).Draw(rt, "hole") == 0 {
				y = math.NaN()
			}
			points = append(points, xy{rapid.Float64Range(1e-3, 1e6).Draw(rt, "x"), y})
		}
		c := plot("a title", "s", "", rapid.Bool().Draw(rt, "log"), 0, []line{{"run0", "one", points}})
		for _, cmd := range strings.FieldsFunc(c.Lines[0].Path, func(r rune) bool { return r == 'M' || r == 'L' }) {
			var x, y float64
			if _, err := fmt.Sscan(cmd, &x, &y); err != nil || x < c.X0 || x > c.X1 || y < c.Y0 || y > c.Y1 {
				rt.Fatalf("point %q outside %g..%g, %g..%g (%v)", cmd, c.X0, c.X1, c.Y0, c.Y1, err)
			}
		}
		for _, ticks := range [][]tick{c.XTicks, c.YTicks} {
			if len(ticks) > 10 {
				rt.Fatalf("%d ticks", len(ticks))
			}
			for i := 1; i < len(ticks); i++ {
				if ticks[i].At == ticks[i-1].At || ticks[i].Label == ticks[i-1].Label {
					rt.Fatalf("ticks %+v", ticks)
				}
			}
		}
	})
}
