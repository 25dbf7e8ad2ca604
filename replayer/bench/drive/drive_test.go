package drive

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fleetdrill/gateway/index"
	"fleetdrill/internal/leaks"
	"fleetdrill/replayer/bench/corpus"
	"fleetdrill/replayer/trace"
)

// tiny is a corpus of the first rows of the built-in trace on four small engines.
func tiny(t testing.TB) *corpus.Corpus {
	t.Helper()
	r, err := trace.Default(trace.Options{Rows: trace.Rows{Count: 60}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	rows, err := corpus.ReadRows(r)
	if err != nil {
		t.Fatal(err)
	}
	p := corpus.DefaultParams()
	p.LengthFactor, p.Duplication, p.Workers, p.PoolBlocks = 1, 1, 4, 300
	c, err := corpus.Build(rows, p)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// script is a corpus of operations alone: worker, rank, kind, deadline, one block each.
func script(ops ...corpus.Op) *corpus.Corpus {
	c := &corpus.Corpus{Header: corpus.Header{WindowNs: 1000, Workers: 9}, Ops: ops, Queries: []uint64{1}, Hashes: []uint64{1}, Contents: []uint64{1}, Removals: []uint64{1}}
	for i := range c.Ops {
		c.Ops[i].Length = 1
	}
	return c
}

func TestPlan(t *testing.T) {
	c := script(
		corpus.Op{Deadline: 0, Worker: 5, Kind: corpus.Query},
		corpus.Op{Deadline: 0, Worker: 5, Kind: corpus.Stored},
		corpus.Op{Deadline: 100, Worker: 2, Kind: corpus.Stored},
		corpus.Op{Deadline: 100, Worker: 2, Rank: 1, Kind: corpus.Stored},
		corpus.Op{Deadline: 500, Worker: 5, Kind: corpus.Removed},
		corpus.Op{Deadline: 1000, Worker: 2, Kind: corpus.Query},
	)
	for name, want := range map[string]struct {
		spec    Spec
		at      []int64
		lane    []int32
		holders []index.Holder
		window  int64
	}{
		// 6 block ops at 6 million per second take 1000 ns; holders in the order they appear in.
		"two lanes":              {Spec{Lanes: 2, Offered: 6e6}, []int64{0, 0, 100, 100, 500, 1000}, []int32{-1, 0, 1, 0, 0, -1}, []index.Holder{0, 0, 1, 2, 0, 0}, 1000},
		"half the rate":          {Spec{Lanes: 1, Offered: 3e6}, []int64{0, 0, 200, 200, 1000, 2000}, []int32{-1, 0, 0, 0, 0, -1}, []index.Holder{0, 0, 1, 2, 0, 0}, 2000},
		"room for three":         {Spec{Lanes: 1, Offered: 6e6, MaxNs: 500}, []int64{0, 0, 500}, []int32{-1, 0, 0}, []index.Holder{0, 0, 1}, 500},
		"room for less than one": {Spec{Lanes: 1, Offered: 1e6, MaxNs: 1}, []int64{0}, []int32{-1}, []index.Holder{0}, 1000},
		// Worker 2 alone has 3 block ops.
		"workers below 3": {Spec{Lanes: 1, Offered: 3e6, Workers: 3}, []int64{100, 100, 1000}, []int32{0, 0, -1}, []index.Holder{0, 1, 0}, 1000},
	} {
		p, err := plan(c, want.spec)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want.at, p.at) + cmp.Diff(want.lane, p.lane) + cmp.Diff(want.holders, p.holders); diff != "" {
			t.Errorf("%s: -want +got\n%s", name, diff)
		}
		if p.windowNs != want.window || p.blockOps != uint64(len(want.at)) {
			t.Errorf("%s: %d block ops in %d ns, want %d in %d", name, p.blockOps, p.windowNs, len(want.at), want.window)
		}
	}
	if _, err := plan(c, Spec{Lanes: 1, Offered: 1e6, Workers: 2}); err == nil {
		t.Error("a plan of no operation")
	}
}

// Deadlines keep their order and reach the ends of any window.
func TestScale(t *testing.T) {
	for _, c := range []struct{ at, window, reference uint64 }{{0, 7, 10}, {10, 7, 10}, {9, 7, 10}, {3_600_000_000_000, 1 << 62, 3_600_000_000_000}} {
		got := scale(c.at, c.window, c.reference)
		if want := float64(c.at) / float64(c.reference) * float64(c.window); float64(got) > want || float64(got) < want-1 {
			t.Errorf("%+v: %d, want %g", c, got, want)
		}
	}
}

// The definition: everything issued within 1.01 windows, 99 % of the rate with the draining, 1.10 windows.
func TestJudge(t *testing.T) {
	const window = time.Second
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	for _, c := range []struct {
		what                     string
		issued, last             time.Duration
		complete                 bool
		valid, sustained, keptUp bool
	}{
		{"on time", ms(1000), ms(1005), true, true, true, true},
		{"drained in the last hundredth", ms(1000), ms(1010), true, true, true, true},
		{"drained later", ms(1000), ms(1012), true, true, false, true},
		{"drained far too late", ms(1000), ms(1101), true, true, false, false},
		{"issued at the bound", ms(1010), ms(1010), true, true, true, true},
		{"issued too late", ms(1011), ms(1011), true, false, false, false},
		{"given up", ms(1000), ms(1000), false, false, false, false},
	} {
		r := Result{BlockOps: 1_000_000, Complete: c.complete}
		judge(&r, window, c.issued, c.last, 1_000_000)
		if r.GeneratorValid != c.valid || r.Sustained != c.sustained || r.KeptUp != c.keptUp {
			t.Errorf("%s: %+v", c.what, r)
		}
	}
	r := Result{BlockOps: 1000}
	if judge(&r, window, 0, 0, 0); r.Achieved != 0 || r.Offered != 1000 {
		t.Errorf("nothing done: %+v", r)
	}
}

func TestDistributionTakesNearestRanks(t *testing.T) {
	var ns []uint32
	for i := range uint32(1000) {
		ns = append(ns, (1000-i)*1000)
	}
	if diff := cmp.Diff(Latency{P50: 500, P99: 990, P999: 999, Max: 1000, N: 1000}, Distribution(ns)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(Latency{P50: 7, P99: 7, P999: 7, Max: 7, N: 1}, Distribution([]uint32{7000})); diff != "" {
		t.Error(diff)
	}
	if (Distribution(nil) != Latency{}) {
		t.Error("a distribution of nothing")
	}
}

func TestCPUTimes(t *testing.T) {
	if got := busy([]byte("cpu  100 10 50 9000 70 3 2 5 0 0\ncpu0 1 2\n")); got < 1.699 || got > 1.701 {
		t.Errorf("busy for %g s, want 1.7: idle and waiting left out", got)
	}
	if busy([]byte("intr 5\n")) >= 0 || busy([]byte("cpu a b c d e f g h\n")) >= 0 {
		t.Error("nonsense was understood")
	}
	pid, p, ok := process([]byte("42 (a (b) c) S 1 42 42 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 1 0 5 0 0\n"))
	if !ok || pid != 42 || p.name != "a (b) c" || p.seconds != 3 {
		t.Errorf("%d %+v %v", pid, p, ok)
	}
	if _, _, ok := process([]byte("42 nothing")); ok {
		t.Error("nonsense was understood")
	}
	now := time.Now()
	before := usage{at: now, machine: 10, own: 4, byOthers: map[int]procTime{7: {"cc", 1}}}
	after := usage{at: now.Add(2 * time.Second), machine: 13, own: 5, byOthers: map[int]procTime{7: {"cc", 2.5}, 8: {"new", 0.01}}}
	if diff := cmp.Diff(Foreign{Cores: 1, Busiest: "cc (0.75 of a core)"}, after.since(before)); diff != "" {
		t.Error(diff)
	}
	before.machine = -1
	if f := after.since(before); f.Cores >= 0 {
		t.Errorf("%+v, though the system does not say", f)
	}
}

// Every index ends with the memberships that the corpus promises, on one lane and on three.
func TestReplayEndsWhereTheEnginesDo(t *testing.T) {
	defer leaks.None(t)
	c := tiny(t)
	for _, name := range append(Contestants(), "sharded:2") {
		for _, lanes := range []int{1, 3} {
			r, err := Replay(c, Spec{Index: name, Lanes: lanes, Offered: float64(c.Totals.BlockOps()) * 20, PatienceNs: int64(time.Minute)})
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Validate(); err != nil || !r.Complete {
				t.Fatalf("%s: %v, %+v", name, err, r)
			}
			if r.Memberships != int64(c.Resident) || r.Lookup.N != int(c.Totals.Requests) || r.IssueLag.N != len(c.Ops) {
				t.Errorf("%s on %d lanes: %d memberships, want %d; %d lookups of %d, %d issues of %d", name, lanes, r.Memberships, c.Resident,
					r.Lookup.N, c.Totals.Requests, r.IssueLag.N, len(c.Ops))
			}
			if r.Achieved <= 0 || r.BytesPerMembership <= 0 {
				t.Errorf("%s: %+v", name, r)
			}
		}
	}
}

func TestTheNullIndexHoldsNothing(t *testing.T) {
	c := tiny(t)
	r, err := Replay(c, Spec{Index: Null, Lanes: 1, Offered: float64(c.Totals.BlockOps()) * 50, PatienceNs: int64(time.Minute)})
	if err != nil {
		t.Fatal(err)
	}
	if r.Memberships != 0 || r.Unknown != 0 || !r.Complete {
		t.Fatalf("%+v", r)
	}
}

// A trial that is out of patience ends, and says so.
func TestGivingUp(t *testing.T) {
	defer leaks.None(t)
	c, s := tiny(t), Spec{Index: "chain", Lanes: 2, Offered: 1e6}
	p, err := plan(c, s)
	if err != nil {
		t.Fatal(err)
	}
	r := newRun(c, p, s)
	if r.index, err = Make(s.Index); err != nil {
		t.Fatal(err)
	}
	r.stop.Store(true)
	if res := r.measured(); res.Complete || res.GeneratorValid || res.Sustained || res.KeptUp || res.Lookup.N > 0 {
		t.Fatalf("%+v", res)
	}
}

func TestTrialsNameWhatIsWrong(t *testing.T) {
	good := Spec{Corpus: filepath.Join(t.TempDir(), "none"), Index: "chain", Lanes: 1, Offered: 1e6}
	for want, change := range map[string]func(*Spec){
		"no such file": func(*Spec) {},
		"0 lanes":      func(s *Spec) { s.Lanes = 0 },
		"0 block ops":  func(s *Spec) { s.Offered = 0 },
		"is negative":  func(s *Spec) { s.MaxNs = -1 },
	} {
		s := good
		change(&s)
		if _, err := Trial(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if err := CheckNames([]string{"chain", "nosuch"}); err == nil || !strings.Contains(err.Error(), "null") {
		t.Error(err)
	}
	if CheckNames([]string{"chain", "chain"}) == nil || CheckNames(nil) == nil || CheckNames([]string{"chain", Null}) != nil {
		t.Error("names are not checked")
	}
}
