package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fleetdrill/replayer/bench/corpus"
	"fleetdrill/replayer/bench/drive"
)

// -rewrite writes the golden files:
//
//	go test ./replayer/bench -args -rewrite
var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s: -want +got\n%s", name, diff)
	}
}

func TestBracket(t *testing.T) {
	for name, c := range map[string]struct{ start, limit float64 }{
		"from below": {1e6, 7.3e6}, "from above": {40e6, 7.3e6}, "at the limit": {7.3e6, 7.3e6}, "far above": {100e6, 1e6},
	} {
		calls := 0
		lo, hi, err := bracket(c.start, func(rate float64) (bool, error) { calls++; return rate <= c.limit, nil })
		if err != nil || lo > c.limit || hi <= c.limit || hi > lo*narrow || calls > 2*maxSteps {
			t.Errorf("%s: %g to %g after %d trials, %v; the limit is %g", name, lo, hi, calls, err, c.limit)
		}
	}
	if lo, hi, _ := bracket(1e6, func(float64) (bool, error) { return false, nil }); lo != 0 || hi <= 0 {
		t.Errorf("nothing holds: %g to %g", lo, hi)
	}
	if lo, hi, _ := bracket(1e6, func(float64) (bool, error) { return true, nil }); lo <= 1e6 || hi != 0 {
		t.Errorf("everything holds: %g to %g", lo, hi)
	}
	broken := errors.New("broken")
	if _, _, err := bracket(1e6, func(float64) (bool, error) { return false, broken }); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}

// The interval holds the median, narrows with more values, and is the same every time.
func TestEstimate(t *testing.T) {
	var few, many []float64
	for i := range 400 {
		v := 100 + 10*math.Sin(float64(i)*1.7)
		if many = append(many, v); i < 10 {
			few = append(few, v)
		}
	}
	a, b := estimate(few, "x"), estimate(many, "x")
	if a.Low > a.Median || a.Median > a.High || b.High-b.Low >= a.High-a.Low {
		t.Errorf("%+v of 10 values, %+v of 400", a, b)
	}
	if again := estimate(few, "x"); again != a {
		t.Errorf("%+v, then %+v", a, again)
	}
	if e := estimate([]float64{5}, "x"); e != (Estimate{5, 5, 5}) {
		t.Errorf("one value: %+v", e)
	}
	if e := estimate(nil, "x"); e != (Estimate{}) {
		t.Errorf("no value: %+v", e)
	}
	// What both had in common does not widen the ratio.
	x, y := []float64{10, 20, 30, 40}, []float64{5, 10, 15, 20}
	if e := ratio(x, y, "x"); e != (Estimate{2, 2, 2}) {
		t.Errorf("a ratio of exactly 2: %+v", e)
	}
	if e := ratio([]float64{1}, []float64{0}, "x"); e.Median != 0 {
		t.Errorf("over nothing: %+v", e)
	}
	if m := median([]float64{4, 1, 3, 2}); m != 2.5 {
		t.Errorf("median %g", m)
	}
}

// machine runs made-up trials: each index keeps up to its limit and is achieved at most a tenth above it.
type machine struct {
	limits  map[string]float64
	foreign []float64 // of the first trials
	specs   []drive.Spec
	err     error
}

func (m *machine) run(_ context.Context, t Task, result any) error {
	if m.err != nil {
		return m.err
	}
	s := *t.Replay
	m.specs = append(m.specs, s)
	r := result.(*drive.Result)
	limit := m.limits[s.Index] * float64(s.Lanes)
	*r = drive.Result{Index: s.Index, Lanes: s.Lanes, Workers: s.Workers, Cores: 2, Offered: s.Offered, Achieved: min(s.Offered, 1.1*limit), GeneratorValid: true,
		Complete: true, Sustained: s.Offered <= limit, KeptUp: s.Offered <= 1.05*limit, BytesPerMembership: 1e9 / limit, LoadAvg: 0.5,
		Lookup: drive.Latency{P50: 1e6 / limit, P99: 1e7 / limit, P999: 2e7 / limit, Max: 1e8 / limit, N: 100}}
	if n := len(m.specs); n <= len(m.foreign) {
		r.Foreign.Cores = m.foreign[n-1]
	}
	return nil
}

func options(m *machine, indexes ...string) Options {
	c := &corpus.Corpus{Header: corpus.Header{Trace: "t.jsonl", BlockSize: 128, Duplication: 2, LengthFactor: 4, Workers: 128, Resident: 900,
		Totals: corpus.Totals{Requests: 10, StoredEvents: 20, RemovedEvents: 15, RequestBlocks: 4000, StoredBlocks: 3000, RemovedBlocks: 2100}}}
	return Options{Corpus: c, Path: "c", Indexes: indexes, Lanes: 1, Trials: 3, Discards: 2, Run: m.run}
}

func TestIndexFindsTheLimitOfEachIndex(t *testing.T) {
	m := &machine{limits: map[string]float64{"chain": 12e6, "crtc": 6e6, "maptree": 3e6, "null": 80e6}}
	r, err := Index(context.Background(), options(m, "chain", "crtc", "maptree", "null"))
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range r.Rows {
		limit := m.limits[row.Index]
		if row.Sustained > limit || row.Sustained < limit/narrow || row.Held != 3 || row.Trials != 3 || math.Abs(row.Capacity-1.1*limit) > 1 {
			t.Errorf("%+v, the limit is %g", row, limit)
		}
	}
	if r.Control.Index != "chain" || r.Control.Capacity.Median != 1 {
		t.Errorf("control %+v", r.Control)
	}
	// In every round each index and the control are measured in turn, never one index three times.
	last := m.specs[len(m.specs)-10:]
	var turn []string
	for i := 0; i < len(last); i += 2 {
		turn = append(turn, last[i].Index)
	}
	if diff := cmp.Diff([]string{"chain", "crtc", "maptree", "null", "chain"}, turn); diff != "" {
		t.Error(diff)
	}
	if len(r.Trials) != len(m.specs) || r.Corpus.BlockOps != 9100 {
		t.Errorf("%d trials of %d, %+v", len(r.Trials), len(m.specs), r.Corpus)
	}
	r.Trials = nil
	golden(t, "index.txt", r.Text())
	goldenJSON(t, "index.json", r)
}

func goldenJSON(t *testing.T, name string, v any) {
	t.Helper()
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, name, string(b)+"\n")
}

// Trials beside foreign load are made again while there is patience, then kept and counted.
func TestNoisyTrialsAreReplaced(t *testing.T) {
	m := &machine{limits: map[string]float64{"chain": 12e6}, foreign: []float64{0.9, 0.3, 1.2, 0.8, 0.1}}
	o := options(m, "chain")
	o.Trials = 3
	r, err := Once(context.Background(), o, 8e6)
	if err != nil {
		t.Fatal(err)
	}
	// Made again: the first and the third. Kept: the second; the fourth, for want of patience; the fifth.
	if r.Discards != 2 || r.Noisy != 1 || len(r.Trials) != 3 || len(m.specs) != 5 {
		t.Fatalf("%+v after %d trials, %d kept", r.Machine, len(m.specs), len(r.Trials))
	}
	if row := r.Rows[0]; row.Sustained != 8e6 || row.Held != 3 {
		t.Errorf("%+v", row)
	}
	if text := r.Machine.Text(); !strings.Contains(text, "not those of a quiet machine") {
		t.Error(text)
	}
}

func TestOneTrialSustainsNothing(t *testing.T) {
	o := options(&machine{limits: map[string]float64{"chain": 12e6}}, "chain")
	o.Trials = 1
	r, err := Once(context.Background(), o, 8e6)
	if err != nil || r.Rows[0].Sustained != 0 || r.Rows[0].Achieved != 8e6 {
		t.Fatalf("%+v, %v", r, err)
	}
}

func TestABrokenTrialEndsTheBench(t *testing.T) {
	broken := errors.New("broken")
	if _, err := Index(context.Background(), options(&machine{err: broken}, "chain")); !errors.Is(err, broken) {
		t.Error(err)
	}
}

func TestLadder(t *testing.T) {
	m := &machine{limits: map[string]float64{"chain": 12e6, "maptree": 3e6}}
	o := options(m, "chain", "maptree")
	r, err := Ladder(context.Background(), o, Windows(o.Corpus.Totals.BlockOps(), 1))
	if err != nil {
		t.Fatal(err)
	}
	r.Trials = nil
	golden(t, "ladder.txt", r.Text())
	goldenJSON(t, "ladder.json", r)
}

func TestScaling(t *testing.T) {
	m := &machine{limits: map[string]float64{"chain": 12e6, "sharded:2": 9e6}}
	o := options(m, "chain")
	o.Corpus.Workers = 16
	r, err := Scaling(context.Background(), o, 2)
	if err != nil {
		t.Fatal(err)
	}
	r.Trials = nil
	golden(t, "scaling.txt", r.Text())
	rows := []ScalingRow{{Shards: 1, Workers: 8, Lanes: 1, Capacity: 10}, {Shards: 1, Workers: 8, Lanes: 2, Capacity: 15}, {Shards: 1, Workers: 16, Lanes: 1, Capacity: 9}}
	deviate(rows)
	if rows[1].FromLinear != -0.25 || math.Abs(rows[2].FromFirst+0.1) > 1e-12 || rows[0].FromLinear != 0 {
		t.Errorf("%+v", rows)
	}
}

// The picture is well-formed and has a dot per trial.
func TestPlot(t *testing.T) {
	m := &machine{limits: map[string]float64{"chain": 12e6, "<x>": 3e6}}
	o := options(m, "chain", "<x>")
	r, err := Ladder(context.Background(), o, Windows(o.Corpus.Totals.BlockOps(), 1))
	if err != nil {
		t.Fatal(err)
	}
	svg := Plot(append(r.Trials, &drive.Result{Index: "nothing"}))
	if n := strings.Count(svg, "<title>"); n != len(r.Trials) {
		t.Errorf("%d dots for %d trials", n, len(r.Trials))
	}
	for _, s := range []string{svg, Plot(nil)} {
		for d := xml.NewDecoder(strings.NewReader(s)); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
	golden(t, "plot.svg", svg)
}

func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		f    Figure
		want string
	}{
		{Figure{Here: 25, Bar: 8, Goal: 20, More: true}, "goal"}, {Figure{Here: 8, Bar: 8, Goal: 20, More: true}, "bar"}, {Figure{Here: 7.9, Bar: 8, Goal: 20, More: true}, "missed"},
		{Figure{Here: 1, Bar: 3, Goal: 1.3}, "goal"}, {Figure{Here: 3, Bar: 3, Goal: 1.3}, "bar"}, {Figure{Here: 3.1, Bar: 3, Goal: 1.3}, "missed"},
	} {
		if got := c.f.Verdict(); got != c.want {
			t.Errorf("%+v: %s, want %s", c.f, got, c.want)
		}
	}
}

// Every kind of task runs in a process that has read it, at a size that takes no time; what cannot be run is
// named.
func TestTasks(t *testing.T) {
	for name, task := range map[string]Task{
		"churn":    {Churn: &ChurnSpec{Index: "chain", Workers: 4, Chains: 20, MinBlocks: 2, MaxBlocks: 20, Shared: 0.7, Cache: 60, Answer: 2, Events: 2000, Samples: 4, Exact: 20, Final: 50, Seed: 1}},
		"memory":   {Memory: &MemorySpec{Index: "maptree", Workers: 8, MinHolders: 1, MaxHolders: 4, Blocks: 16, Memberships: 4096, Seed: 1}},
		"peer":     {Peer: &PeerSpec{Index: "chain", Holders: 4, PerChain: 2, Blocks: 256, Prompt: 32, Step: 8, Lookups: 200, Seed: 1}},
		"decision": {Decision: &DecisionSpec{Index: "chain", Policy: "cache_aware", Workers: 3, Blocks: 700, BlockSize: 16, Sessions: 4, Requests: 40, Rate: 2000, LengthNs: 1e8, WarmupNs: 1e7, AloneNs: 1e6, Seed: 1}},
	} {
		in, err := json.Marshal(task)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := RunTask(bytes.NewReader(in), &out); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		check(t, name, out.Bytes())
	}
	for want, in := range map[string]string{
		"is empty": "{}", "unknown field": `{"x": 1}`, "no such file": `{"replay": {"corpus": "/none", "index": "chain", "lanes": 1, "offered": 1}}`,
		"churning with": `{"churn": {"index": "chain"}}`, "filling an index with": `{"memory": {}}`, "measuring with": `{"peer": {}}`, "deciding with": `{"decision": {}}`,
	} {
		if err := RunTask(strings.NewReader(in), io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// check holds a result against what must be true at any speed.
func check(t *testing.T, name string, out []byte) {
	t.Helper()
	var churn ChurnResult
	var memory MemoryRow
	var peer PeerRow
	var decision DecisionRow
	into := map[string]any{"churn": &churn, "memory": &memory, "peer": &peer, "decision": &decision}[name]
	if err := json.Unmarshal(out, into); err != nil {
		t.Fatal(err)
	}
	ok := false
	switch name {
	case "churn":
		before, after := churn.Rows[0], churn.Rows[1]
		ok = len(churn.Samples) == 4 && before.Phase == "before" && after.Phase == "after" && after.Events >= 2000 && after.Exact == 50 &&
			after.RunsLive > 0 && after.RunsPerLookup >= 1 && after.MeanRunLength >= 1 && after.Memberships <= 4*60 && churn.FillEvents > 0
	case "memory":
		ok = memory.Memberships >= 4096 && memory.Blocks < memory.Memberships && memory.HoldersPerChain == "1-4" && memory.HeapPerMembership > 16
	case "peer":
		ok = peer.Memberships == 2*256 && peer.Cleared == 2*256/4 && peer.Lookup.N == 200 && peer.Beside.N == 200 && peer.Holders == "2 of 4"
	case "decision":
		n := 0
		for _, k := range decision.Branches {
			n += k
		}
		ok = n > 0 && n == decision.Us.N && decision.Memberships == 3*700 && decision.Hash.N > 0 && decision.Lookup.N > 0 && decision.MeanBlocks > 8
	}
	if !ok {
		t.Errorf("%s: %s", name, out)
	}
}

// An index that answers wrong is found out by the caches.
func TestChurnFindsAWrongIndex(t *testing.T) {
	s := ChurnSpec{Workers: 4, Chains: 20, MinBlocks: 2, MaxBlocks: 20, Cache: 60, Answer: 2, Events: 500, Samples: 2, Exact: 100, Seed: 1}
	ix, err := drive.Make("chain")
	if err != nil {
		t.Fatal(err)
	}
	l := newLife(s, ix)
	l.until(500)
	if _, err := l.sample(100); err != nil {
		t.Fatal(err)
	}
	ix.Clear(2)
	if _, err := l.sample(500); err == nil || !strings.Contains(err.Error(), "the score of worker 2 is 0") {
		t.Fatalf("a cleared holder was not noticed: %v", err)
	}
}

// The reports of the benches without a corpus, from fixed rows.
func TestTables(t *testing.T) {
	lat := func(p50 float64) drive.Latency { return drive.Latency{P50: p50, P99: 3 * p50, P999: 9 * p50, N: 1000} }
	churn := &ChurnReport{Rows: []ChurnRow{{Index: "chain", Phase: "before", Events: 500_000, RunsLive: 70_000, MeanRunLength: 8.8, RunsPerLookup: 2.4, Lookup: lat(1), Exact: 200, Memberships: 2_560_000},
		{Index: "chain", Phase: "after", Events: 10_000_000, RunsLive: 70_100, MeanRunLength: 8.8, RunsPerLookup: 2.5, Lookup: lat(1.05), Exact: 5000, Memberships: 2_560_000}}}
	churn.Runs = []*ChurnResult{{Rows: churn.Rows, Requests: 2_000_000, WallS: 40, LoadAvg: 1, Foreign: drive.Foreign{Cores: 0.2, Busiest: "cc (0.20 of a core)"}}}
	memory := &MemoryReport{Rows: []MemoryRow{{Index: "chain", HoldersPerChain: "128", Memberships: 2_097_152, Blocks: 16_384, HeapBytes: 50e6, SlabBytes: 49e6, FreeBytes: 1e6, HeapPerMembership: 23.8, SlabPerMembership: 23.4, AfterClear: 9e6},
		{Index: "maptree", HoldersPerChain: "1-4", Memberships: 2_097_152, Blocks: 800_000, HeapBytes: 150e6, HeapPerMembership: 71.5}}}
	decision := &DecisionReport{Rows: []DecisionRow{{Workers: 128, Index: "chain", Policy: "cache_aware", DecisionsPerS: 10_000, Us: lat(4.2), Lookup: lat(1), Hash: lat(5), MeanBlocks: 117, Branches: map[string]int{"event_hit": 90, "event_miss": 10}},
		{Workers: 1024, Index: "chain", Policy: "cache_aware", DecisionsPerS: 10_000, Us: lat(13), Lookup: lat(2), Hash: lat(5), MeanBlocks: 117, Branches: map[string]int{"event_hit": 100}, Foreign: drive.Foreign{Cores: 0.1}}}}
	peer := &PeerReport{Rows: []PeerRow{{Index: "chain", Holders: "8 of 8", Blocks: 1 << 20, Lookup: lat(1), Beside: lat(2), Adds: 9e6, Memberships: 8 << 20, HeapBytes: 23, ClearMs: 12, Cleared: 1 << 20}}}
	for name, report := range map[string]interface{ Text() string }{"churn": churn, "memory": memory, "decision": decision, "peer": peer} {
		golden(t, name+".txt", report.Text())
		goldenJSON(t, name+".json", report)
	}
}
