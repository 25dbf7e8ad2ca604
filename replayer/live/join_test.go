package live

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fleetdrill/internal/contract"
	"fleetdrill/internal/tokens"
	"fleetdrill/oracle"
	"fleetdrill/replayer/load"
	"fleetdrill/replayer/plan"
	"fleetdrill/replayer/result"
	"fleetdrill/replayer/trace"
)

// start is the instant of offset 0 in these tests.
const start0 = int64(1e12)

// planned is a plan of rows of the given prompt lengths, all about one conversation, a second apart.
func planned(t *testing.T, inputs ...int) *plan.Plan {
	t.Helper()
	var b []byte
	for i, n := range inputs {
		row := trace.Row{StampNs: int64(i) * 1e9, Input: n, Output: 4}
		for k := range (n + trace.BlockTokens - 1) / trace.BlockTokens {
			row.IDs = append(row.IDs, uint64(k))
		}
		b = row.AppendJSON(b)
	}
	p, err := plan.Read(trace.NewReader(strings.NewReader(string(b)), "test", trace.Options{}), plan.Options{Arrivals: plan.Raw, Warmup: 1})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestJoin(t *testing.T) {
	p := planned(t, 600, 600, 600, 600)
	due := func(i int) int64 { return start0 + int64(i)*1e9 }
	seen := []load.Record{
		{N: 0, ID: "row-0", ScheduledNs: due(0), SentNs: due(0) + 5, FirstNs: due(0) + 100, EndNs: due(0) + 200, GapsNs: []int64{7}, Worker: "w2", Attempts: 2, Predicted: 16, Cached: 16, Output: 4, Outcome: load.OutcomeOK},
		{N: 1, ID: "row-1", ScheduledNs: due(1), Predicted: -1, Outcome: load.OutcomeFailed, Error: "refused", EndNs: due(1) + 9},
		{N: 2, ID: "row-2", ScheduledNs: due(2), SentNs: due(2), Outcome: load.OutcomeOpen, Predicted: -1},
	}
	log := serveLog{}
	log.add("w1", []contract.TruthRequest{
		{ID: "cmpl-row-0", ArrivalMonoNs: due(0) + 20},
		{ID: "row-2", ArrivalMonoNs: due(2) + 30, ScheduledMonoNs: due(2) + 40, CachedTokens: 32},
	})
	log.add("w2", []contract.TruthRequest{{ID: "cmpl-row-0", ArrivalMonoNs: due(0) + 10, ScheduledMonoNs: due(0) + 11, CachedTokens: 999}})

	got := join(p, start0, seen, log)
	row := func(i int) result.Request {
		return result.Request{TimestampMs: float64(i) * 1000, Input: 600, Output: 4, IDs: []uint64{0, 1}, N: i, Row: i, ID: seen[i].ID, Warmup: i == 0,
			ScheduledNs: int64(i) * 1e9, SendLagNs: -1, PlacedNs: -1, EngineNs: -1, PromptTokens: 600, MaxTokens: 4, Predicted: -1, Best: -1, Held: -1, StalenessNs: -1}
	}
	want := []result.Request{row(0), row(1), row(2)}
	w := &want[0] // the worker that answered, not the one that was tried first
	w.SendLagNs, w.PlacedNs, w.EngineNs, w.TTFTNs, w.E2ENs, w.GapsNs = 5, 10, 11, 100, 200, []int64{7}
	w.Worker, w.Attempts, w.Cached, w.OutputTokens, w.Predicted, w.Outcome = "w2", 2, 16, 4, 16, result.OK
	w = &want[1] // never left, never arrived
	w.E2ENs, w.Outcome, w.Error = 9, result.Failed, "refused"
	w = &want[2] // cut before it said anything: the engine knows who had it
	w.SendLagNs, w.PlacedNs, w.EngineNs, w.Worker, w.Cached, w.Outcome = 0, 30, 40, "w1", 32, result.Open
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}

// storeAll is the journal line that stores the whole chain of a prompt.
func storeAll(seq, at int64, ids []uint32) *contract.TruthJournal {
	j := &contract.TruthJournal{Seq: seq, MonoNs: at}
	for i, content := range tokens.AppendChain(nil, ids, 16, 0) {
		s := contract.TruthStore{Hash: contract.U64(1000 + i), Position: i, Content: contract.U64(content)}
		if i > 0 {
			parent := contract.U64(1000 + i - 1)
			s.Parent = &parent
		}
		j.Stored = append(j.Stored, s)
	}
	return j
}

func TestBestHoldersAndModelCaches(t *testing.T) {
	p := planned(t, 600, 640, 640, 100)
	out := make([]result.Request, 4)
	for i := range out {
		out[i] = result.Request{ScheduledNs: int64(i) * 1e9, PlacedNs: 0, PromptTokens: p.Requests[i].PromptTokens, Best: -1, Held: -1, Worker: "w2"}
	}
	out[1].PlacedNs = -1 // nobody saw it
	tl := oracle.NewTimeline(3)
	// w1 has two ranks; its second one holds the first prompt from 1.5 s on, w2 all of the last from 2.5 s on.
	if err := tl.Append(1, storeAll(0, start0+1500*int64(time.Millisecond), p.Requests[0].Tokens(nil))); err != nil {
		t.Fatal(err)
	}
	if err := tl.Append(2, storeAll(0, start0+2500*int64(time.Millisecond), p.Requests[3].Tokens(nil))); err != nil {
		t.Fatal(err)
	}
	bestHolders(p, start0, out, tl, []string{"w1", "w1", "w2"}, 16)
	modelCaches(p, out, 16, 38)
	var best, held, pooled, unbounded []int
	for _, r := range out {
		best, held = append(best, r.Best), append(held, r.Held)
		pooled, unbounded = append(pooled, r.Pooled), append(unbounded, r.Unbounded)
	}
	for _, c := range []struct {
		what      string
		got, want []int
	}{
		{"best", best, []int{0, -1, 592, 96}}, // 37 whole blocks of 600 tokens; 6 of 100, the deepest anywhere
		{"held", held, []int{0, -1, 0, 96}},
		{"pooled", pooled, []int{0, 592, 608, 96}}, // 38 blocks of 40 stay
		{"unbounded", unbounded, []int{0, 592, 624, 96}},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s %v, want %v", c.what, c.got, c.want)
		}
	}
}

func TestModelCachesFollowArrivals(t *testing.T) {
	p := planned(t, 600, 600)
	out := []result.Request{{ScheduledNs: 0, PlacedNs: 2e9}, {ScheduledNs: 1e9, PlacedNs: 5}}
	modelCaches(p, out, 16, 1000)
	if out[0].Unbounded != 592 || out[1].Unbounded != 0 || out[0].Pooled != 592 || out[1].Pooled != 0 {
		t.Errorf("%+v: the second arrived first", out)
	}
}

func TestProgressIsOverWhatEnded(t *testing.T) {
	m := newMeter(10)
	ok := load.Record{Outcome: load.OutcomeOK, ScheduledNs: 0, FirstNs: 50e6, Cached: 30, PromptTokens: 100}
	open := load.Record{Outcome: load.OutcomeOpen}
	got := m.read([]load.Record{ok, open}, 1, time.Second)
	if d := cmp.Diff(Progress{Planned: 10, Sent: 2, Ended: 1, Elapsed: time.Second, Rate: 1, TTFTP50Ms: got.TTFTP50Ms, Hit: 0.3}, got); d != "" || got.TTFTP50Ms < 49 || got.TTFTP50Ms > 51 {
		t.Errorf("%v\n%s", got.TTFTP50Ms, d)
	}
	ok.Cached = 100
	failed := load.Record{Outcome: load.OutcomeFailed}
	got = m.read([]load.Record{ok, failed, failed}, 4, 3*time.Second)
	if got.Sent != 4 || got.Ended != 4 || got.Errors != 2 || got.Rate != 1.5 || got.Hit != 0.65 {
		t.Errorf("%+v", got)
	}
}

func TestBodyIsTheRequest(t *testing.T) {
	p := planned(t, 3, 600)
	s, err := newSource(p, `a "model"`)
	if err != nil {
		t.Fatal(err)
	}
	first, _ := s.Next()
	ids := p.Requests[0].Tokens(nil)
	want := fmt.Sprintf(`{"model":"a \"model\"","prompt":[%d,%d,%d`, ids[0], ids[1], ids[2]) +
		`],"max_tokens":4,"ignore_eos":true,"temperature":0,"stream":true,"stream_options":{"include_usage":true}}`
	if string(first.Body) != want || first.ID != "row-0" || first.PromptTokens != 3 || first.MaxTokens != 4 || first.OffsetNs != 0 {
		t.Errorf("%+v\n%s\nwant\n%s", first, first.Body, want)
	}
	second, ok := s.Next()
	if !ok || second.OffsetNs != 1e9 || second.PromptTokens != 600 {
		t.Errorf("%d tokens at %d", second.PromptTokens, second.OffsetNs)
	}
	if _, ok := s.Next(); ok {
		t.Error("a third request of two rows")
	}
}
