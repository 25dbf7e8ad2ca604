package live

import (
	"cmp"
	"slices"

	"fleetdrill/internal/contract"
	"fleetdrill/internal/tokens"
	"fleetdrill/oracle"
	"fleetdrill/replayer/load"
	"fleetdrill/replayer/plan"
	"fleetdrill/replayer/result"
)

// enginePrefix is what engines put before X-Request-Id to name a completion (vLLM).
const enginePrefix = "cmpl-"

// served is one entry of an engine's request log.
type served struct {
	worker string
	contract.TruthRequest
}

// serveLog finds entries by the client's request id: a retried request has several.
type serveLog map[string][]served

func (l serveLog) add(worker string, requests []contract.TruthRequest) {
	for _, r := range requests {
		l[r.ID] = append(l[r.ID], served{worker, r})
	}
}

// find is the entry of the worker that the gateway named; when it names none, or one that has no entry, the
// one that arrived last, for that is who answered.
func (l serveLog) find(id, worker string) (found served, ok bool) {
	entries := l[enginePrefix+id]
	if len(entries) == 0 {
		entries = l[id] // SGLang's
	}
	for _, s := range entries {
		if s.worker == worker {
			return s, true
		}
		if !ok || s.ArrivalMonoNs > found.ArrivalMonoNs {
			found, ok = s, true
		}
	}
	return found, ok
}

// join makes the records of a replay from what the client saw and what the engines logged. Requests that were
// never due, because the load ended early, have no record. The oracle's figures are still unknown.
func join(p *plan.Plan, startNs int64, seen []load.Record, log serveLog) []result.Request {
	out := make([]result.Request, len(seen))
	for i := range seen {
		out[i] = joinOne(&p.Requests[i], startNs, &seen[i], log)
	}
	return out
}

func joinOne(q *plan.Request, startNs int64, c *load.Record, log serveLog) result.Request {
	since := func(ns int64, never int64) int64 {
		if ns == 0 {
			return never
		}
		return ns - c.ScheduledNs
	}
	r := result.Request{
		TimestampMs: float64(q.Row.StampNs) / 1e6, Input: q.Row.Input, Output: q.Row.Output, Session: q.Row.Session, IDs: q.Row.IDs,
		N: c.N, Row: q.Row.N, ID: c.ID, Warmup: q.Warmup,
		ScheduledNs: c.ScheduledNs - startNs, SendLagNs: since(c.SentNs, -1), PlacedNs: -1, EngineNs: -1,
		TTFTNs: since(c.FirstNs, 0), E2ENs: since(c.EndNs, 0), GapsNs: c.GapsNs,
		Worker: c.Worker, Attempts: c.Attempts, PromptTokens: q.PromptTokens, MaxTokens: q.MaxTokens,
		Cached: c.Cached, OutputTokens: c.Output, Predicted: c.Predicted, Best: -1, Held: -1, StalenessNs: -1,
		Outcome: c.Outcome, Error: c.Error,
	}
	s, ok := log.find(c.ID, c.Worker)
	if !ok {
		return r
	}
	r.PlacedNs, r.EngineNs = since(s.ArrivalMonoNs, -1), since(s.ScheduledMonoNs, -1)
	if r.Worker == "" {
		r.Worker = s.worker
	}
	if r.Cached == 0 { // an engine that is not asked to, and an answer that was cut, do not tell
		r.Cached = s.CachedTokens
	}
	return r
}

// modelCaches fills in what one pool as large as the fleet's and one that never evicts would have reused, fed
// in the order in which requests arrived: on a slow machine two that are due together may change places.
func modelCaches(p *plan.Plan, out []result.Request, blockSize, fleetBlocks int) {
	pool, unbounded := oracle.NewPooled(fleetBlocks), oracle.Unbounded{}
	var chain []uint64
	var ids []uint32
	for _, i := range arrivalOrder(out) {
		ids = p.Requests[i].Tokens(ids[:0])
		chain = tokens.AppendChain(chain[:0], ids, blockSize, 0)
		out[i].Pooled = oracle.Tokens(pool.Serve(chain), blockSize, len(ids))
		out[i].Unbounded = oracle.Tokens(unbounded.Serve(chain), blockSize, len(ids))
	}
}

// arrivalOrder is the requests' places by arrival at their engines; one that never arrived counts when it was
// due.
func arrivalOrder(out []result.Request) []int {
	order := make([]int, len(out))
	for i := range order {
		order[i] = i
	}
	at := func(i int) int64 { return out[i].ScheduledNs + max(0, out[i].PlacedNs) }
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(at(a), at(b)) })
	return order
}

// bestHolders fills in what the fleet held at every placement. workers name the holders in order, a worker
// once for each of its ranks.
func bestHolders(p *plan.Plan, startNs int64, out []result.Request, t *oracle.Timeline, workers []string, blockSize int) {
	var asked []oracle.Placement
	var ids []uint32
	for i := range out {
		r := &out[i]
		if r.PlacedNs < 0 {
			continue
		}
		asked = append(asked, oracle.Placement{
			AtNs: startNs + r.ScheduledNs + r.PlacedNs,
			Chain: func(dst []uint64) []uint64 {
				ids = p.Requests[i].Tokens(ids[:0])
				return tokens.AppendChain(dst, ids, blockSize, 0)
			},
			Answer: func(depths []int, best int) {
				held := 0
				for h, depth := range depths {
					if workers[h] == r.Worker {
						held = max(held, depth)
					}
				}
				r.Best = oracle.Tokens(best, blockSize, r.PromptTokens)
				r.Held = oracle.Tokens(held, blockSize, r.PromptTokens)
			},
		})
	}
	t.Ask(asked)
}
