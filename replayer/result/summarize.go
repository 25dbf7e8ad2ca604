package result

import (
	"fleetdrill/replayer/load"
)

// Summarize condenses the requests of a replay, in scheduled order. Warm-up requests count nowhere.
func Summarize(info Info, requests []Request) Summary {
	if info.Reasons == nil {
		info.Reasons = []string{}
	}
	if info.Notes == nil {
		info.Notes = []string{}
	}
	s := Summary{Info: info, ByError: map[string]int{}, PerWorker: make([]int, len(info.WorkerIDs)), Valid: len(info.Reasons) == 0}
	t := newTally(&s)
	for i := range requests {
		if r := &requests[i]; !r.Warmup {
			t.add(r)
		}
	}
	t.finish()
	s.Digest = digest(requests)
	return s
}

// tally adds up requests into a summary.
type tally struct {
	s     *Summary
	place map[string]int // worker id -> its place

	ttft, tpot, gap, e2e, lag, staleness load.Histogram

	first, last            int64 // scheduled instants
	good, strict           int
	pooled, unbounded      int64
	truthCached, truthBest int64
}

func newTally(s *Summary) *tally {
	t := &tally{s: s, place: map[string]int{}, ttft: load.NewHistogram(), tpot: load.NewHistogram(), gap: load.NewHistogram(),
		e2e: load.NewHistogram(), lag: load.NewHistogram(), staleness: load.NewHistogram()}
	for i, id := range s.WorkerIDs {
		t.place[id] = i
	}
	return t
}

func (t *tally) add(r *Request) {
	if t.s.Requests == 0 {
		t.first = r.ScheduledNs
	}
	t.last = max(t.last, r.ScheduledNs)
	t.s.Requests++
	t.times(r)
	if i, ok := t.place[r.Worker]; ok {
		t.s.PerWorker[i]++
	}
	mean, strict := t.s.SLO.Kept(r)
	t.good += count(mean)
	t.strict += count(strict)
	t.credit(r)
	switch r.Outcome {
	case OK:
		t.s.OK++
		t.tokens(r)
	case Aborted:
		t.s.Aborted++
	default:
		t.s.Errors++
		t.s.ByError[reason(r)]++
	}
}

// reason is the error text of a request that did not finish.
func reason(r *Request) string {
	if r.Error == "" {
		return r.Outcome
	}
	return r.Error
}

func (t *tally) times(r *Request) {
	if r.SendLagNs >= 0 {
		t.lag.Add(r.SendLagNs)
	}
	if r.TTFTNs > 0 {
		t.ttft.Add(r.TTFTNs)
	}
	for _, g := range r.GapsNs {
		t.gap.Add(g)
	}
	if r.StalenessNs >= 0 {
		t.staleness.Add(r.StalenessNs)
	}
	if r.Outcome != OK {
		return
	}
	t.e2e.Add(r.E2ENs)
	if v := r.TPOTNs(); v > 0 {
		t.tpot.Add(v)
	}
}

// tokens counts what an ok request reused beside what it could have.
func (t *tally) tokens(r *Request) {
	t.s.Cached += int64(r.Cached)
	t.s.Prompt += int64(r.PromptTokens)
	t.pooled += int64(r.Pooled)
	t.unbounded += int64(r.Unbounded)
	if r.Best < 0 {
		return
	}
	t.s.OracleKnown++
	t.truthCached += int64(r.Cached)
	t.truthBest += int64(max(r.Best, r.Cached))
	t.s.LateHits += max(0, r.Cached-r.Best) / max(1, t.s.BlockSize)
}

// credit sorts one request by promise and delivery.
func (t *tally) credit(r *Request) {
	diff := r.Cached - max(0, r.Predicted)
	c := &t.s.Credit
	switch {
	case diff == 0:
		c.Equal++
		return
	case diff > -t.s.BlockSize && diff < t.s.BlockSize:
		c.WithinBlock++
		return
	case diff < 0:
		c.Over++
	default:
		c.Under++
	}
	t.residue(r)
}

// residue says why a promise was not what came.
func (t *tally) residue(r *Request) {
	exact := r.Held >= 0 && r.Held == max(0, r.Predicted)
	switch {
	case exact && r.Cached > r.Held:
		t.s.Residue.LateStore++
	case exact && r.Cached < r.Held:
		t.s.Residue.LateEvict++
	default:
		t.s.Residue.View++
	}
}

func (t *tally) finish() {
	s := t.s
	s.TTFT, s.TPOT, s.Gap, s.E2E = t.ttft.Quantiles(), t.tpot.Quantiles(), t.gap.Quantiles(), t.e2e.Quantiles()
	s.SendLag, s.Staleness = t.lag.Quantiles(), t.staleness.Quantiles()
	s.WindowS = float64(t.last-t.first) / 1e9
	if s.WindowS > 0 {
		s.Goodput = float64(t.good) / s.WindowS
	}
	s.WithinSLO = ratio(int64(t.good), int64(s.Requests))
	s.WithinSLOOK = ratio(int64(t.good), int64(s.OK))
	s.WithinStrict = ratio(int64(t.strict), int64(s.Requests))
	s.Reuse, s.PooledReuse, s.UnboundedReuse = ratio(s.Cached, s.Prompt), ratio(t.pooled, s.Prompt), ratio(t.unbounded, s.Prompt)
	s.HitOverPooled = ratio(s.Cached, t.pooled)
	if s.OracleKnown > 0 {
		hit := 1.0 // nobody had anything, and nothing more could have been hit
		if t.truthBest > 0 {
			hit = ratio(t.truthCached, t.truthBest)
		}
		s.HitOverBest = &hit
	}
	s.Balance = balance(s.PerWorker)
}

// balance is the busiest worker's requests over the mean of all, idle ones included; 0 when none served.
func balance(perWorker []int) float64 {
	most, all := 0, 0
	for _, n := range perWorker {
		most = max(most, n)
		all += n
	}
	return ratio(int64(most*len(perWorker)), int64(all))
}

// ratio is part over whole, 0 of nothing.
func ratio(part, whole int64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}
