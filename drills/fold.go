package drills

import (
	"strconv"

	"fleetdrill/drills/predicate"
	"fleetdrill/internal/contract"
	"fleetdrill/internal/lab"
)

// key names a series of one worker as samples do: routable(w3).
func key(series, worker string) string { return series + "(" + worker + ")" }

// rankKey names a series of one rank: blocks(w3/0).
func rankKey(series, worker string, rank int) string {
	return series + "(" + worker + "/" + strconv.Itoa(rank) + ")"
}

// truthSeries are the series whose source is the engine itself; they are absent while a fault owns it.
var (
	truthSeries     = []string{"engine_running", "engine_waiting", "epoch", "worker_rss"}
	truthRankSeries = []string{"batches_published", "announced", "index_equal", "count_error"}
)

// fold turns one reading into the values of a sample. A series without a reading has no key.
func fold(r reading) (values map[string]float64, text map[string]string, absent []string) {
	v, t := map[string]float64{}, map[string]string{}
	for k, x := range r.memory {
		v[k] = x
	}
	for w, l := range r.links {
		v[key("attempts", w)] = float64(l.attempts)
		v[key("probes", w)] = float64(l.probes)
	}
	for w, e := range r.engines {
		foldTruth(v, w, e.truth)
	}
	if r.state != nil {
		foldState(v, t, r)
	}
	for w := range r.owned {
		// A drill's engines have one rank.
		for _, s := range truthRankSeries {
			absent = append(absent, rankKey(s, w, 0))
		}
		for _, s := range truthSeries {
			absent = append(absent, key(s, w))
		}
	}
	for _, k := range absent {
		delete(v, k)
	}
	return v, t, absent
}

func foldTruth(v map[string]float64, w string, t lab.Glance) {
	var running, waiting int64
	for _, r := range t.Ranks {
		running += int64(r.Running)
		waiting += int64(r.Waiting)
		v[rankKey("batches_published", w, r.Rank)] = float64(r.NextSeq)
		v[rankKey("announced", w, r.Rank)] = float64(r.AnnouncedBlocks)
	}
	v[key("engine_running", w)] = float64(running)
	v[key("engine_waiting", w)] = float64(waiting)
	v[key("epoch", w)] = float64(t.Epoch)
}

func foldState(v map[string]float64, text map[string]string, r reading) {
	c := r.state.Counters
	v["requests_seen"], v["lookups"], v["hits"] = float64(c.Requests), float64(c.Lookups), float64(c.Hits)
	v["misses"], v["retries"] = float64(c.Misses), float64(c.Retries)
	for _, w := range r.state.Workers {
		v[key("routable", w.ID)] = truth(w.Routable)
		v[key("thin", w.ID)] = truth(w.Thin)
		v[key("inflight", w.ID)] = float64(w.Inflight)
		v[key("dispatches", w.ID)] = float64(w.Dispatches)
		v[key("diverted", w.ID)] = float64(w.Diverted)
		v[key("failures", w.ID)] = float64(w.Failures)
		v[key("last_contact", w.ID)] = w.LastContactMs / 1e3
		if w.Load != nil {
			v[key("gateway_load", w.ID)] = float64(w.Load.Running + w.Load.Waiting)
		}
		text[key("breaker", w.ID)] = w.Breaker
		text[key("phase", w.ID)] = w.Phase
		text[key("veto", w.ID)] = predicate.VetoNone
		if w.Veto != nil {
			text[key("veto", w.ID)] = w.Veto.Reason
		}
		for _, rank := range w.Ranks {
			foldRank(v, text, w.ID, rank)
			if e, ok := r.engines[w.ID]; ok {
				foldEqual(v, w.ID, rank, e)
			}
		}
	}
}

func foldRank(v map[string]float64, text map[string]string, w string, r contract.RoutingRank) {
	v[rankKey("blocks", w, r.Rank)] = float64(r.Blocks)
	v[rankKey("seq", w, r.Rank)] = float64(r.NextSeq)
	v[rankKey("apply_lag", w, r.Rank)] = r.ApplyLagMs / 1e3
	v[rankKey("gaps", w, r.Rank)] = float64(r.Counters.Gaps)
	v[rankKey("duplicates", w, r.Rank)] = float64(r.Counters.Duplicates)
	v[rankKey("replayed", w, r.Rank)] = float64(r.Counters.Replayed)
	v[rankKey("unrecovered", w, r.Rank)] = float64(r.Counters.Unrecovered)
	v[rankKey("refilled", w, r.Rank)] = float64(r.Counters.Refilled)
	foldCauses(v, "resyncs", w, r.Rank, contract.ResyncCauses, r.Counters.Resyncs)
	foldCauses(v, "restarts", w, r.Rank, contract.RestartRules, r.Counters.Restarts)
	for _, q := range []string{contract.QualityDegraded, contract.QualityPartial, contract.QualityStale} {
		v[rankKey(q, w, r.Rank)] = truth(r.Quality == q)
	}
	text[rankKey("stream", w, r.Rank)] = r.Stream
	text[rankKey("quality", w, r.Rank)] = r.Quality
	text[rankKey("digest", w, r.Rank)] = strconv.FormatUint(uint64(r.Digest), 10)
}

// foldCauses writes one counter per cause and their sum.
func foldCauses(v map[string]float64, series, w string, rank int, causes []string, counts map[string]int64) {
	var sum float64
	for _, c := range causes {
		v[rankKey(series+"."+c, w, rank)] = float64(counts[c])
		sum += float64(counts[c])
	}
	v[rankKey(series, w, rank)] = sum
}

// foldEqual compares the gateway's digest with what the engine had announced at the gateway's own
// sequence number, so that the answer is known under load too. A number that the lab has not read leaves
// the series unknown.
func foldEqual(v map[string]float64, w string, r contract.RoutingRank, e engineReading) {
	if r.Rank >= len(e.at) || e.at[r.Rank] == nil {
		return
	}
	said := e.at[r.Rank]
	v[rankKey("index_equal", w, r.Rank)] = truth(said.Digest == r.Digest)
	diff := float64(said.Blocks - r.Blocks)
	v[rankKey("count_error", w, r.Rank)] = max(diff, -diff) / float64(max(1, said.Blocks))
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
