package drills

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"fleetdrill/internal/contract"
	"fleetdrill/internal/lab"
)

// twoWorkers is a reading of a fleet of two: w1 is well and equal, w2 is vetoed.
func twoWorkers() reading {
	rank := contract.RoutingRank{Stream: contract.StreamLive, Quality: contract.QualityExact, NextSeq: 7, Blocks: 90, Digest: 5,
		ApplyLagMs: 12, Counters: contract.RankCounters{Gaps: 2, Resyncs: map[string]int64{contract.ResyncFirst: 1, contract.ResyncGap: 2}}}
	return reading{
		state: &contract.RoutingState{
			Counters: contract.RoutingCounters{Requests: 9, Lookups: 8, Hits: 4, Misses: 3, Retries: 1},
			Workers: []contract.RoutingWorker{
				{ID: "w1", Routable: true, Inflight: 2, Dispatches: 5, Breaker: contract.BreakerClosed, Phase: contract.PhaseReady,
					Load: &contract.RoutingLoad{Running: 2, Waiting: 1}, Ranks: []contract.RoutingRank{rank}},
				{ID: "w2", Veto: &contract.Veto{Reason: contract.VetoDead}, Breaker: contract.BreakerOpen, Phase: contract.PhaseStarting},
			},
		},
		engines: map[string]engineReading{"w1": {
			// The engine is at batch 9 already; the gateway is compared with what was announced before 7.
			truth: lab.Glance{Epoch: 3, Ranks: []lab.GlanceRank{{NextSeq: 9, AnnouncedBlocks: 104, Digest: 8, Running: 2}}},
			at:    []*contract.TruthDigest{{Seq: 6, Blocks: 100, Digest: 5}},
		}},
		links: map[string]linkCounts{"w1": {attempts: 5, probes: 30}},
		owned: map[string]bool{},
	}
}

func TestFoldNamesSeriesAsTheLanguageDoes(t *testing.T) {
	values, text, absent := fold(twoWorkers())
	for k, want := range map[string]float64{
		"routable(w1)": 1, "routable(w2)": 0, "inflight(w1)": 2, "gateway_load(w1)": 3, "dispatches(w1)": 5,
		"engine_running(w1)": 2, "epoch(w1)": 3, "attempts(w1)": 5, "probes(w1)": 30, "misses": 3, "lookups": 8,
		"blocks(w1/0)": 90, "announced(w1/0)": 104, "seq(w1/0)": 7, "gaps(w1/0)": 2, "apply_lag(w1/0)": 0.012,
		"resyncs(w1/0)": 3, "resyncs.gap_cleared(w1/0)": 2, "restarts(w1/0)": 0,
		"index_equal(w1/0)": 1, "count_error(w1/0)": 0.1, "batches_published(w1/0)": 9,
	} {
		if got, ok := values[k]; !ok || got != want {
			t.Errorf("%s = %v (present %v), want %v", k, got, ok, want)
		}
	}
	for k, want := range map[string]string{"veto(w1)": "none", "veto(w2)": "dead", "breaker(w2)": "open", "stream(w1/0)": "live", "quality(w1/0)": "exact"} {
		if text[k] != want {
			t.Errorf("%s = %q, want %q", k, text[k], want)
		}
	}
	if len(absent) != 0 {
		t.Errorf("absent without a fault: %v", absent)
	}
	if _, ok := values["gateway_load(w2)"]; ok {
		t.Error("gateway_load(w2) has a value although the gateway has no load record of it")
	}
}

func TestFoldComparesAtOneSequenceOnly(t *testing.T) {
	r := twoWorkers()
	r.engines["w1"].at[0] = nil // what the lab has not read of the gateway's number
	values, _, _ := fold(r)
	if _, ok := values["index_equal(w1/0)"]; ok {
		t.Error("index_equal was decided between two sequence numbers")
	}
}

func TestFoldLeavesOutWhatAFaultOwns(t *testing.T) {
	r := twoWorkers()
	r.owned["w1"] = true
	r.memory = map[string]float64{"worker_rss(w1)": 1e7, "gateway_rss": 2e7}
	values, _, absent := fold(r)
	if diff := cmp.Diff([]string{"batches_published(w1/0)", "announced(w1/0)", "index_equal(w1/0)", "count_error(w1/0)",
		"engine_running(w1)", "engine_waiting(w1)", "epoch(w1)", "worker_rss(w1)"}, absent); diff != "" {
		t.Errorf("absent series (-want +got):\n%s", diff)
	}
	for _, k := range absent {
		if _, ok := values[k]; ok {
			t.Errorf("%s is absent and has a value", k)
		}
	}
	if values["routable(w1)"] != 1 || values["gateway_rss"] != 2e7 {
		t.Error("the gateway's own series went with the engine's")
	}
}

func TestFoldWithoutRoutingState(t *testing.T) {
	r := twoWorkers()
	r.state = nil
	values, text, _ := fold(r)
	if _, ok := values["routable(w1)"]; ok || len(text) != 0 {
		t.Error("a routing state that was not read has values")
	}
	if values["engine_running(w1)"] != 2 {
		t.Error("truth was lost with the routing state")
	}
}
