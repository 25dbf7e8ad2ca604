package result

import "slices"

// Published are figures by the conventions of the public replayer that published tables come from, to be
// compared with those tables and with nothing else: they flatter. Times count from the actual send, so a late
// sender goes unseen; fractions are of the ok requests, so errors leave the denominator; goodput is over the
// time to the last completion, warm-up included; balance is over the workers that served something. Percentiles
// are the sorted element at round((n-1) p).
type Published struct {
	TTFT      PublishedTimes `json:"ttft_ms"`
	Goodput   float64        `json:"goodput_req_per_s"`
	WithinSLO float64        `json:"within_slo_fraction"`
	Strict    float64        `json:"within_slo_strict_fraction"`
	Reuse     float64        `json:"prefix_reuse"`
	// OracleReuse and HitOverOracle are null when the engines' truth is not known.
	OracleReuse   *float64 `json:"oracle_prefix_reuse"`
	HitOverOracle *float64 `json:"hit_over_oracle"`
	Balance       float64  `json:"balance_max_over_mean"`
}

// PublishedTimes are in ms.
type PublishedTimes struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
}

// Publish condenses requests by those conventions. One rule stays ours: the last token of a prompt never
// counts as something an oracle could have had cached.
func Publish(slo SLO, requests []Request) Published {
	t := publishing{slo: slo, served: map[string]int{}}
	for i := range requests {
		t.add(requests[i])
	}
	p := Published{TTFT: publishedTimes(t.ttft), WithinSLO: ratio(t.scored, t.ok), Strict: ratio(t.strict, t.ok),
		Reuse: ratio(t.cached, t.prompt), Balance: publishedBalance(t.served)}
	if t.endNs > 0 {
		p.Goodput = float64(t.good) * 1e9 / float64(t.endNs)
	}
	if t.known > 0 {
		reuse, hit := ratio(t.best, t.prompt), ratio(t.cached, t.best)
		p.OracleReuse, p.HitOverOracle = &reuse, &hit
	}
	return p
}

// publishing adds up requests.
type publishing struct {
	slo   SLO
	endNs int64 // the last completion, after the start
	good  int64 // within the SLO, warm-up included

	ok, scored, strict          int64 // without the warm-up, as all below
	cached, prompt, known, best int64
	ttft                        []int64
	served                      map[string]int
}

func (t *publishing) add(r Request) {
	if r.E2ENs > 0 {
		t.endNs = max(t.endNs, r.ScheduledNs+r.E2ENs)
	}
	if r.Outcome != OK {
		return
	}
	r.TTFTNs -= r.SendLagNs
	mean, strict := t.slo.Kept(&r)
	t.good += int64(count(mean))
	if r.Warmup {
		return
	}
	t.ok++
	t.scored += int64(count(mean))
	t.strict += int64(count(strict))
	t.ttft = append(t.ttft, r.TTFTNs)
	t.cached += int64(r.Cached)
	t.prompt += int64(r.PromptTokens)
	t.served[r.Worker]++
	if r.Best >= 0 {
		t.known++
		t.best += int64(max(r.Best, r.Cached))
	}
}

// publishedTimes sorts ttft, in ns.
func publishedTimes(ttft []int64) (t PublishedTimes) {
	if len(ttft) == 0 {
		return t
	}
	slices.Sort(ttft)
	total := 0.0
	for _, v := range ttft {
		total += float64(v) / 1e6
	}
	at := func(percent int) float64 { return float64(ttft[((len(ttft)-1)*percent+50)/100]) / 1e6 }
	return PublishedTimes{total / float64(len(ttft)), at(50), at(90), at(99)}
}

func publishedBalance(served map[string]int) float64 {
	most, all := 0, 0
	for _, n := range served {
		most, all = max(most, n), all+n
	}
	return ratio(int64(most*len(served)), int64(all))
}
