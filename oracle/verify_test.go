package oracle

import (
	"context"
	"encoding/json"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fleetdrill/internal/contract"
	"fleetdrill/internal/leaks"
)

var update = flag.Bool("update", false, "rewrite golden files")

func TestMain(m *testing.M) { leaks.Main(m) }

func truthBlock(hash uint64, position int, content uint64) contract.TruthBlock {
	return contract.TruthBlock{Hash: contract.U64(hash), Position: position, Content: contract.U64(content), Copies: 1, Tier: "device"}
}

func dumpBlock(hash uint64, position int, content uint64) contract.DumpBlock {
	return contract.DumpBlock{Hash: contract.U64(hash), Position: position, Content: contract.U64(content)}
}

func TestCompare(t *testing.T) {
	d := Compare(
		[]contract.TruthBlock{truthBlock(1, 0, 10), truthBlock(2, 1, 11), truthBlock(3, 2, 12), truthBlock(4, 0, 13)},
		[]contract.DumpBlock{dumpBlock(9, 5, 15), dumpBlock(3, 0, 12), dumpBlock(1, 0, 10), dumpBlock(4, 0, 99), dumpBlock(8, 4, 14)})
	g3, g4 := dumpBlock(3, 0, 12), dumpBlock(4, 0, 99)
	want := Diff{
		Missing: []Difference{{Side: Missing, Hash: 2, Position: 1, Content: 11}},
		Extra:   []Difference{{Side: Extra, Hash: 8, Position: 4, Content: 14}, {Side: Extra, Hash: 9, Position: 5, Content: 15}},
		Moved: []Difference{{Side: Moved, Hash: 4, Position: 0, Content: 13, Gateway: &g4},
			{Side: Moved, Hash: 3, Position: 2, Content: 12, Gateway: &g3}},
	}
	if diff := cmp.Diff(want, d); diff != "" {
		t.Fatal(diff)
	}
	if d.Equal() || !Compare(nil, nil).Equal() {
		t.Fatal("Equal does not tell a difference from none")
	}
	if first := d.First(2); len(first) != 2 || first[0].Hash != 4 || first[1].Hash != 2 {
		t.Fatalf("the first two differences are %+v", first)
	}
}

// fleet serves a gateway's dump and an engine's truth.
type fleet struct {
	dump    func(worker, rank string) (contract.DumpHead, []contract.DumpBlock, bool)
	truth   func(rank, at string) (contract.TruthBlocksHead, []contract.TruthBlock, bool)
	journal []contract.TruthJournal
}

func (f fleet) serve(t *testing.T) (url string) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /routing/dump", func(w http.ResponseWriter, r *http.Request) {
		head, blocks, ok := f.dump(r.FormValue("worker"), r.FormValue("rank"))
		if !ok {
			http.Error(w, "no such rank", http.StatusNotFound)
			return
		}
		lines(w, head, blocks)
	})
	mux.HandleFunc("GET /admin/truth/blocks", func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("set") != "announced" {
			http.Error(w, "wrong set", http.StatusBadRequest)
			return
		}
		head, blocks, ok := f.truth(r.FormValue("rank"), r.FormValue("at"))
		if !ok {
			http.Error(w, "the ring no longer reaches back that far", http.StatusBadRequest)
			return
		}
		lines(w, head, blocks)
	})
	mux.HandleFunc("GET /admin/truth/journal", func(w http.ResponseWriter, r *http.Request) {
		lines(w, nil, f.journal)
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

func lines[T any](w http.ResponseWriter, head any, items []T) {
	enc := json.NewEncoder(w)
	if head != nil {
		enc.Encode(head)
	}
	for _, item := range items {
		enc.Encode(item)
	}
}

func TestVerify(t *testing.T) {
	var asked atomic.Int64
	url := fleet{
		dump: func(worker, rank string) (contract.DumpHead, []contract.DumpBlock, bool) {
			switch worker + rank {
			case "w10": // the ring has moved on twice before the third dump is recent enough
				n := asked.Add(1)
				return contract.DumpHead{Seq: 4 + n}, []contract.DumpBlock{dumpBlock(1, 0, 10)}, true
			case "w11":
				return contract.DumpHead{Seq: 8, Shed: 3}, []contract.DumpBlock{dumpBlock(1, 0, 10), dumpBlock(4, 1, 12), dumpBlock(5, 3, 14)}, true
			}
			return contract.DumpHead{}, nil, false
		},
		truth: func(rank, at string) (contract.TruthBlocksHead, []contract.TruthBlock, bool) {
			switch rank + " " + at {
			case "0 7":
				return contract.TruthBlocksHead{Seq: 7}, []contract.TruthBlock{truthBlock(1, 0, 10)}, true
			case "1 8":
				return contract.TruthBlocksHead{Seq: 8}, []contract.TruthBlock{truthBlock(1, 0, 10), truthBlock(2, 1, 11), truthBlock(4, 2, 12)}, true
			}
			return contract.TruthBlocksHead{}, nil, false
		},
		journal: []contract.TruthJournal{
			{Seq: 3, Stored: []contract.TruthStore{{Hash: 5, Position: 3}, {Hash: 2, Position: 1}}},
			{Seq: 5, Removed: []contract.U64{5, 77}},
			{Seq: 6, Cleared: true},
			{Seq: 8, Stored: []contract.TruthStore{{Hash: 1}, {Hash: 2, Position: 1}, {Hash: 4, Position: 2}}},
			{Seq: 9, Removed: []contract.U64{2}},
		},
	}.serve(t)

	report, err := Verify(context.Background(), url, []WorkerAdmin{{ID: "w1", AdminURL: url, Ranks: []int{0, 1}}, {ID: "w2", AdminURL: url}})
	if err != nil {
		t.Fatal(err)
	}
	got := report.Text()
	const file = "testdata/report.txt"
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	if report.Equal() {
		t.Error("a report with differences is equal")
	}
	checkKeys(t, report)
}

// checkKeys checks the keys that scripts rely on.
func checkKeys(t *testing.T, report Report) {
	t.Helper()
	raw, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"workers", "worker", "rank", "seq", "engine_blocks", "gateway_blocks",
		"host_engine_blocks", "host_gateway_blocks", "missing", "extra", "equal"} {
		if !strings.Contains(string(raw), `"`+key+`":`) {
			t.Errorf("key %s is not in %s", key, raw)
		}
	}
}

func TestVerifyEqual(t *testing.T) {
	url := fleet{
		dump: func(string, string) (contract.DumpHead, []contract.DumpBlock, bool) {
			return contract.DumpHead{Seq: -1}, nil, true
		},
		truth: func(_, at string) (contract.TruthBlocksHead, []contract.TruthBlock, bool) {
			return contract.TruthBlocksHead{Seq: -1}, nil, at == "-1"
		},
	}.serve(t)
	report, err := Verify(context.Background(), url+"/", []WorkerAdmin{{ID: "w1", AdminURL: url}})
	if err != nil || !report.Equal() {
		t.Fatalf("two empty sides: %+v, %v", report, err)
	}
	if (Report{}).Equal() {
		t.Fatal("a report about nobody is equal")
	}
}

// An engine that answers for another number than the one asked for is not compared with.
func TestVerifyNeedsOneSequenceNumber(t *testing.T) {
	url := fleet{
		dump: func(string, string) (contract.DumpHead, []contract.DumpBlock, bool) {
			return contract.DumpHead{Seq: 5}, nil, true
		},
		truth: func(string, string) (contract.TruthBlocksHead, []contract.TruthBlock, bool) {
			return contract.TruthBlocksHead{Seq: 6}, nil, true
		},
	}.serve(t)
	report, err := Verify(context.Background(), url, []WorkerAdmin{{ID: "w1", AdminURL: url}})
	if err != nil || report.Equal() || report.Workers[0].Error == "" {
		t.Fatalf("%+v, %v", report, err)
	}
}

func TestVerifyEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Verify(ctx, "http://127.0.0.1:1", []WorkerAdmin{{ID: "w1", AdminURL: "http://127.0.0.1:1"}}); err == nil {
		t.Fatal("no error from an ended context")
	}
}

// Tiers are compared one by one. A block whose store did not tell its place may be anywhere, and what lies
// further away than the host is nobody's claim.
func TestVerifyTiers(t *testing.T) {
	in := func(tier string, b contract.TruthBlock) contract.TruthBlock { b.Tier = tier; return b }
	at := func(tier string, b contract.DumpBlock) contract.DumpBlock { b.Tier = tier; return b }
	url := fleet{
		dump: func(string, string) (contract.DumpHead, []contract.DumpBlock, bool) {
			return contract.DumpHead{Seq: 4, Orphans: 2}, []contract.DumpBlock{at("device", dumpBlock(1, 0, 10)), at("device", dumpBlock(5, 1, 11)),
				at("host", dumpBlock(2, 7, 17)), at("host", dumpBlock(1, 0, 10))}, true
		},
		truth: func(string, string) (contract.TruthBlocksHead, []contract.TruthBlock, bool) {
			return contract.TruthBlocksHead{Seq: 4}, []contract.TruthBlock{truthBlock(1, 0, 10), in("host", truthBlock(2, -1, 0)),
				in("host", truthBlock(5, -1, 0)), in("disk", truthBlock(9, 0, 10))}, true
		},
		journal: []contract.TruthJournal{
			{Seq: 2, Stored: []contract.TruthStore{{Hash: 5, Position: 1}}},
			{Seq: 3, Removed: []contract.U64{5}, Others: []contract.TruthJournalSet{
				{Tier: "host", Class: "main", Stored: []contract.TruthStore{{Hash: 5, Position: -1}, {Hash: 1, Position: -1}}},
				{Tier: "disk", Class: "main", Stored: []contract.TruthStore{{Hash: 5}}}}},
			{Seq: 4, Others: []contract.TruthJournalSet{{Tier: "host", Class: "main", Removed: []contract.U64{1}}}},
		},
	}.serve(t)
	report, err := Verify(context.Background(), url, []WorkerAdmin{{ID: "w1", AdminURL: url}})
	if err != nil {
		t.Fatal(err)
	}
	want := RankReport{Worker: "w1", Seq: 4, EngineBlocks: 1, GatewayBlocks: 2, HostEngineBlocks: 2, HostGatewayBlocks: 2, Missing: 1, Extra: 2, Orphans: 2,
		Differences: []Difference{
			{Side: Missing, Tier: "host", Hash: 5, Position: -1, Events: []string{"3 stored by name"}},
			{Side: Extra, Tier: "host", Hash: 1, Position: 0, Content: 10, Events: []string{"3 stored by name", "4 removed"}},
			{Side: Extra, Hash: 5, Position: 1, Content: 11, Events: []string{"2 stored at 1", "3 removed"}},
		}}
	if diff := cmp.Diff(want, report.Workers[0]); diff != "" {
		t.Error(diff)
	}
	if text := report.Text(); !strings.Contains(text, "engine's host") || !strings.Contains(text, "a block of unknown place, on the host") ||
		!strings.Contains(text, "told of 2 stores or host blocks without a place") {
		t.Error(text)
	}
}
