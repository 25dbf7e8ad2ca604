package result

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"fleetdrill/replayer/trace"
)

const ms = int64(time.Millisecond)

// sample is a replay of six requests on three workers of which one idles.
func sample() (Info, []Request) {
	info := Info{Trace: "conversation_trace.jsonl", RowRange: "0-6", Rows: 7, Mode: Live, Policy: "cache_aware", Workers: 3,
		WorkerIDs: []string{"w1", "w2", "w3"}, Speed: 3, Arrivals: "spread", Seed: 1, SLO: DefaultSLO(), Profile: "fast", KVIndex: "maptree",
		KVBlocks: 12000, BlockSize: 16, Hash: "sha256", Preemptions: 2, VirtualS: 10.5, WallS: 11}
	base := func(row int, at int64, worker string) Request {
		return Request{TimestampMs: float64(row), Input: 1000, Output: 3, IDs: []uint64{0, uint64(row)}, N: row, Row: row, ID: fmt.Sprint("row-", row),
			ScheduledNs: at * ms, SendLagNs: ms, PlacedNs: 2 * ms, EngineNs: 3 * ms, TTFTNs: 100 * ms, E2ENs: 160 * ms, GapsNs: []int64{30 * ms, 30 * ms},
			Worker: worker, Attempts: 1, PromptTokens: 1000, MaxTokens: 3, Cached: 320, OutputTokens: 3, Predicted: 320,
			Best: 640, Held: 320, Pooled: 640, Unbounded: 960, StalenessNs: -1, Outcome: OK}
	}
	r := []Request{base(0, 0, "w1"), base(1, 1000, "w1"), base(2, 2000, "w1"), base(3, 3000, "w2"), base(4, 5000, "w2"), base(5, 9000, ""), base(6, 11000, "w1")}
	r[0].Warmup, r[0].Cached = true, 999_999
	r[2].TTFTNs, r[2].E2ENs = 501*ms, 600*ms                 // late
	r[3].GapsNs, r[3].Cached = []int64{1 * ms, 97 * ms}, 336 // good by the mean, not by the p99; blocks came late
	r[4].GapsNs, r[4].OutputTokens, r[4].Cached, r[4].Best, r[4].E2ENs = nil, 1, 800, 640, 100*ms
	r[5].Outcome, r[5].Error, r[5].TTFTNs, r[5].E2ENs, r[5].GapsNs, r[5].Cached, r[5].Predicted, r[5].SendLagNs = Failed, "status 503: no worker", 0, 1*ms, nil, 0, -1, -1
	r[6].Outcome, r[6].Cached = Aborted, 0 // was promised 320, which the worker had
	return info, r
}

func TestSummaryOfASample(t *testing.T) {
	info, requests := sample()
	s := Summarize(info, requests)
	got := fmt.Sprintf("%d requests, %d ok, %d errors %v, %d aborted; valid %v; window %g s, goodput %.3f, slo %.3f ok %.3f strict %.3f;\n"+
		"cached %d of %d, hit %.4f over %d, pooled %.4f, late %d blocks; balance %.2f %v; credit %+v residue %+v; %d ttft, %d tpot, %d gaps, %d lags",
		s.Requests, s.OK, s.Errors, s.ByError, s.Aborted, s.Valid, s.WindowS, s.Goodput, s.WithinSLO, s.WithinSLOOK, s.WithinStrict,
		s.Cached, s.Prompt, *s.HitOverBest, s.OracleKnown, s.HitOverPooled, s.LateHits, s.Balance, s.PerWorker, s.Credit, s.Residue,
		s.TTFT.N, s.TPOT.N, s.Gap.N, s.SendLag.N)
	want := "6 requests, 4 ok, 1 errors map[status 503: no worker:1], 1 aborted; valid true; window 10 s, goodput 0.300, slo 0.500 ok 0.750 strict 0.333;\n" +
		"cached 1776 of 4000, hit 0.6529 over 4, pooled 0.6937, late 10 blocks; balance 1.80 [3 2 0]; credit {Equal:3 WithinBlock:0 Over:1 Under:2} residue {LateStore:2 LateEvict:1 View:0}; 5 ttft, 3 tpot, 8 gaps, 5 lags"
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestReasonsMakeAReplayInvalid(t *testing.T) {
	info, requests := sample()
	info.Reasons = []string{"send lag p99 30.0 ms, want at most 10 ms"}
	if Summarize(info, requests).Valid {
		t.Error("valid")
	}
}

func TestWithoutTruthThereIsNoBestHolder(t *testing.T) {
	info, requests := sample()
	for i := range requests {
		requests[i].Best, requests[i].Held = -1, -1
	}
	s := Summarize(info, requests)
	if s.HitOverBest != nil || s.OracleKnown != 0 || s.Residue.View != 3 {
		t.Errorf("hit over best %v of %d, residue %+v", s.HitOverBest, s.OracleKnown, s.Residue)
	}
}

func TestNothingToSummarise(t *testing.T) {
	s := Summarize(Info{WorkerIDs: []string{"w1"}}, nil)
	if s.Requests != 0 || s.Balance != 0 || s.Goodput != 0 || s.HitOverBest != nil {
		t.Errorf("%+v", s)
	}
}

// The classes of credit are disjoint and sum to the requests, shares are shares, and the digest is that of
// these records and no others, whatever happened.
func TestAnyReplay(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := func(name string, lo, hi int) int { return rapid.IntRange(lo, hi).Draw(rt, name) }
		info := Info{WorkerIDs: []string{"w1", "w2"}, BlockSize: 16, SLO: SLO{TTFT: 5, ITL: 5}}
		var rs []Request
		for i := range in("requests", 1, 20) {
			r := Request{N: i, Row: i, ScheduledNs: int64(i) * 1e9, Warmup: in("warmup", 0, 4) == 0, TTFTNs: int64(in("ttft", 0, 9)), E2ENs: 20,
				PromptTokens: 100, Cached: in("cached", 0, 99), Predicted: in("predicted", -1, 99), Best: in("best", -1, 99), Held: in("held", -1, 99),
				Worker:  rapid.SampledFrom([]string{"w1", "w2", ""}).Draw(rt, "worker"),
				Outcome: rapid.SampledFrom([]string{OK, OK, Failed, Aborted, Open}).Draw(rt, "outcome")}
			for range in("gaps", 0, 3) {
				r.GapsNs = append(r.GapsNs, int64(in("gap", 0, 9)))
			}
			rs = append(rs, r)
		}
		s := Summarize(info, rs)
		counted := len(slices.DeleteFunc(slices.Clone(rs), func(r Request) bool { return r.Warmup }))
		c := s.Credit
		if s.Requests != counted || s.OK+s.Errors+s.Aborted != counted || c.Equal+c.WithinBlock+c.Over+c.Under != counted {
			rt.Fatalf("%d counted: %+v", counted, s)
		}
		if x := s.Residue; x.LateStore+x.LateEvict+x.View != c.Over+c.Under {
			rt.Fatalf("residue %+v of %+v", x, c)
		}
		if s.WithinStrict > s.WithinSLO && len(rs[0].GapsNs) < 2 && s.WithinSLO > s.WithinSLOOK {
			rt.Fatalf("within %v, ok %v", s.WithinSLO, s.WithinSLOOK)
		}
		if h := s.HitOverBest; h != nil && (*h < 0 || *h > 1) {
			rt.Fatalf("hit over best %v", *h)
		}
		if s.Balance != 0 && (s.Balance < 1 || s.Balance > 2) {
			rt.Fatalf("balance %v of two workers", s.Balance)
		}
		i := in("changed", 0, len(rs)-1)
		rs[i].E2ENs++
		if Summarize(info, rs).Digest == s.Digest {
			rt.Fatal("another replay with the same digest")
		}
	})
}

// The share within the SLO, read aloud.
func TestWithinSLOAgainstItsRule(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := Request{Outcome: rapid.SampledFrom([]string{OK, Failed}).Draw(rt, "outcome"), TTFTNs: rapid.Int64Range(0, 20).Draw(rt, "ttft"),
			GapsNs: rapid.SliceOfN(rapid.Int64Range(0, 20), 0, 300).Draw(rt, "gaps")}
		o := SLO{TTFT: time.Duration(rapid.IntRange(0, 20).Draw(rt, "slo ttft")), ITL: time.Duration(rapid.IntRange(0, 20).Draw(rt, "slo itl"))}
		good := r.Outcome == OK && (o.TTFT == 0 || r.TTFTNs > 0 && r.TTFTNs <= int64(o.TTFT))
		mean, over := 0.0, 0
		for _, g := range r.GapsNs {
			mean += float64(g) / float64(len(r.GapsNs))
			if g > int64(o.ITL) {
				over++
			}
		}
		if math.Abs(mean-float64(o.ITL)) < 1e-9 {
			mean = float64(o.ITL)
		}
		wantMean := good && (o.ITL == 0 || mean <= float64(o.ITL))
		// The p99 is at most the bound when no more than the upper hundredth, rounded, is above it.
		wantStrict := good && (o.ITL == 0 || over <= len(r.GapsNs)-1-((len(r.GapsNs)-1)*99+50)/100)
		if len(r.GapsNs) == 0 {
			wantMean, wantStrict = good, good
		}
		if gotMean, gotStrict := o.Kept(&r); gotMean != wantMean || gotStrict != wantStrict {
			rt.Fatalf("%+v under %+v: %v and %v, want %v and %v", r, o, gotMean, gotStrict, wantMean, wantStrict)
		}
	})
}

func TestParseSLO(t *testing.T) {
	for text, want := range map[string]SLO{
		"ttft=500ms,itl=50ms": DefaultSLO(),
		"itl=1s":              {ITL: time.Second},
		"ttft=2s":             {TTFT: 2 * time.Second},
	} {
		got, err := ParseSLO(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%q: %+v %q, %v", text, got, got, err)
		}
	}
	for _, text := range []string{"", "ttft", "ttft=5", "ttft=-1s", "e2e=5s", "ttft=1s,"} {
		if _, err := ParseSLO(text); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}

// golden compares with a file of testdata; UPDATE_GOLDEN=1 writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got)\n%s", name, d)
	}
}

// two are runs of two policies, one of them invalid.
func two() []Run {
	info, requests := sample()
	one := Run{Summarize(info, requests), requests}
	info.Policy, info.Reasons, info.Notes = "round_robin", []string{"send lag p99 30.0 ms, want at most 10 ms"}, []string{"no best holder: the truth of w2 was lost"}
	info.Skipped.LongInput = 1
	other := slices.Clone(requests)
	for i := range other {
		other[i].Best = -1
	}
	runs := []Run{one, {Summarize(info, other), other}}
	for i := range runs {
		p := Publish(info.SLO, runs[i].Requests)
		runs[i].Summary.Published = &p
	}
	return runs
}

func TestTable(t *testing.T) { golden(t, "table.txt", Text(two())) }

func TestJSON(t *testing.T) {
	var one, many strings.Builder
	if err := WriteJSON(&one, two()[:1]); err != nil {
		t.Fatal(err)
	}
	golden(t, "summary.json", one.String())
	if err := WriteJSON(&many, two()); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(many.String(), "{\n  \"runs\": [\n") || strings.Count(many.String(), `"digest"`) != 2 {
		t.Errorf("runs: %s", many.String())
	}
}

// The record of a replay is a trace: its lines can be replayed again.
func TestRequestsAreATrace(t *testing.T) {
	_, requests := sample()
	for i := range requests {
		requests[i].IDs = []uint64{0, uint64(i + 1)}
	}
	var b strings.Builder
	if err := WriteRequests(&b, requests); err != nil {
		t.Fatal(err)
	}
	r := trace.NewReader(strings.NewReader(b.String()), "requests.jsonl", trace.Options{})
	for i := range requests {
		var row trace.Row
		if err := r.Next(&row); err != nil {
			t.Fatal(err)
		}
		if row.StampNs != int64(i)*1e6 || row.Input != 1000 || row.Output != 3 || !slices.Equal(row.IDs, requests[i].IDs) {
			t.Errorf("row %d: %+v", i, row)
		}
	}
	if strings.Count(b.String(), "\n") != len(requests) {
		t.Errorf("%d lines, want %d", strings.Count(b.String(), "\n"), len(requests))
	}
}
