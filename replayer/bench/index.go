package bench

import (
	"context"

	"fleetdrill/replayer/bench/corpus"
	"fleetdrill/replayer/bench/drive"
)

// CorpusInfo is what was replayed.
type CorpusInfo struct {
	Trace         string `json:"trace"`
	Requests      uint64 `json:"requests"`
	StoredEvents  uint64 `json:"stored_events"`
	RemovedEvents uint64 `json:"removed_events"`
	BlockOps      uint64 `json:"block_ops"`
	Resident      uint64 `json:"resident"`

	RequestBlocks uint64 `json:"request_blocks"`
	StoredBlocks  uint64 `json:"stored_blocks"`
	RemovedBlocks uint64 `json:"removed_blocks"`
	Workers       uint64 `json:"workers"`
	BlockSize     uint32 `json:"block_size"`
	Duplication   uint64 `json:"duplication"`
	LengthFactor  uint64 `json:"length_factor"`
	Refused       uint64 `json:"refused,omitempty"`
	Bytes         int64  `json:"bytes"`
}

// Info is the totals of a corpus.
func Info(c *corpus.Corpus) CorpusInfo {
	t := c.Totals
	return CorpusInfo{Trace: c.Trace, Requests: t.Requests, StoredEvents: t.StoredEvents, RemovedEvents: t.RemovedEvents, BlockOps: t.BlockOps(),
		Resident: c.Resident, RequestBlocks: t.RequestBlocks, StoredBlocks: t.StoredBlocks, RemovedBlocks: t.RemovedBlocks, Workers: c.Workers,
		BlockSize: c.BlockSize, Duplication: c.Duplication, LengthFactor: c.LengthFactor, Refused: c.Refused, Bytes: c.Bytes()}
}

// Percentiles are the medians over trials of the lookup percentiles, in us.
type Percentiles struct {
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
}

// IndexRow is one index on so many lanes. Rates are in block ops per second.
type IndexRow struct {
	Index string `json:"index"`
	Lanes int    `json:"lanes"`
	// Offered is the rate of the series and Achieved the median of it: the highest sustained rate, or, if
	// none was, the lowest tried.
	Offered  float64 `json:"offered"`
	Achieved float64 `json:"achieved"`
	// Sustained is the highest rate that three fresh processes kept up, 0 if none was; Capacity what was
	// achieved under overload, another figure.
	Sustained      float64     `json:"sustained"`
	Capacity       float64     `json:"capacity"`
	GeneratorValid bool        `json:"generator_valid"`
	Lookup         Percentiles `json:"lookup_us"`
	// BytesPerMembership is by how much the heap grew, over the memberships at the end.
	BytesPerMembership float64 `json:"bytes_per_membership"`

	// Trials of the series, and how many of them sustained the rate.
	Trials int `json:"trials"`
	Held   int `json:"held"`
	// Intervals of the series' figures.
	AchievedCI Estimate `json:"achieved_ci"`
	CapacityCI Estimate `json:"capacity_ci"`
	P50CI      Estimate `json:"lookup_p50_ci"`
	P99CI      Estimate `json:"lookup_p99_ci"`
	GC         drive.GC `json:"gc"` // of the median trial by number of cycles
}

// Control compares an index with itself: what its ratios differ from 1 is noise.
type Control struct {
	Index    string   `json:"index"`
	Achieved Estimate `json:"achieved_ratio"`
	Capacity Estimate `json:"capacity_ratio"`
	P99      Estimate `json:"lookup_p99_ratio"`
}

// Comparison is one index over the first of the run. Above 1 means that the first has the higher rate, the
// lower latency, the fewer bytes.
type Comparison struct {
	Over      string  `json:"over"`
	Sustained float64 `json:"sustained"`
	Capacity  float64 `json:"capacity"`
	P99       float64 `json:"lookup_p99"`
	Bytes     float64 `json:"bytes"`
}

// IndexReport is what `bench index` found.
type IndexReport struct {
	Corpus CorpusInfo `json:"corpus"`
	Machine
	Rows        []IndexRow   `json:"rows"`
	Control     *Control     `json:"control,omitempty"`
	Comparisons []Comparison `json:"comparisons,omitempty"`
	// Published are the chain index' figures beside those of others, with our bars and goals.
	Published []Figure        `json:"published,omitempty"`
	Trials    []*drive.Result `json:"trials"`
}

// series are the trials of one index, in turns with the others.
type series struct {
	name        string
	lo, hi      float64
	at, pressed []*drive.Result
}

// Index finds each index' sustained rate, then measures it there and under overload, in turns with the
// others and with a control: the first index once more.
func Index(ctx context.Context, o Options) (*IndexReport, error) {
	r := &rounds{ctx: ctx, o: o}
	var all []*series
	for _, name := range o.Indexes {
		s, err := r.bracket(name)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	control := &series{name: o.Indexes[0], lo: all[0].lo, hi: all[0].hi}
	for turn := range o.Trials {
		for _, s := range append(all, control) {
			r.say("round %d of %d: %s", turn+1, o.Trials, s.name)
			if err := r.round(s); err != nil {
				return nil, err
			}
		}
	}
	out := &IndexReport{Corpus: Info(o.Corpus), Machine: r.Machine, Trials: r.trials}
	for _, s := range all {
		out.Rows = append(out.Rows, s.row(o.Lanes))
	}
	out.Control = control.against(all[0])
	out.Comparisons = compare(out.Rows)
	out.Published = published(out)
	return out, nil
}

// Once measures every index at one rate, in turns. A rate counts as sustained when at least three trials all
// keep it up.
func Once(ctx context.Context, o Options, offered float64) (*IndexReport, error) {
	r := &rounds{ctx: ctx, o: o}
	all := make([]*series, len(o.Indexes))
	for turn := range o.Trials {
		for i, name := range o.Indexes {
			r.say("%s: trial %d of %d", name, turn+1, o.Trials)
			t, err := r.trial(name, o.Lanes, offered, nil)
			if err != nil {
				return nil, err
			}
			if all[i] == nil {
				all[i] = &series{name: name}
			}
			all[i].at = append(all[i].at, t)
		}
	}
	out := &IndexReport{Corpus: Info(o.Corpus), Machine: r.Machine, Trials: r.trials}
	for _, s := range all {
		s.hi = s.at[0].Offered
		row := s.row(o.Lanes)
		if row.Held == row.Trials && row.Trials >= confirmations {
			row.Sustained = row.Offered
		}
		out.Rows = append(out.Rows, row)
	}
	out.Comparisons = compare(out.Rows)
	out.Published = published(out)
	return out, nil
}

// bracket finds the ends between which an index stops to keep up.
func (r *rounds) bracket(name string) (*series, error) {
	pressed, err := r.trial(name, r.o.Lanes, overload*float64(r.o.Lanes), nil)
	if err != nil {
		return nil, err
	}
	s := &series{name: name}
	start := 0.8 * pressed.Achieved
	if pressed.Sustained {
		start = pressed.Offered
	}
	s.lo, s.hi, err = bracket(max(start, 1), func(rate float64) (bool, error) {
		ok, err := r.holds(name, r.o.Lanes, rate)
		r.say("%s: %.3g M block ops/s %s", name, rate/1e6, map[bool]string{true: "sustained", false: "not sustained"}[ok])
		return ok, err
	})
	return s, err
}

// rate is what the series is measured at.
func (s *series) rate() float64 {
	if s.lo > 0 {
		return s.lo
	}
	return s.hi
}

// round measures a series once: at its rate, and under overload.
func (r *rounds) round(s *series) error {
	at, err := r.trial(s.name, r.o.Lanes, s.rate(), nil)
	if err != nil {
		return err
	}
	pressed, err := r.trial(s.name, r.o.Lanes, overload*float64(r.o.Lanes), nil)
	if err != nil {
		return err
	}
	s.at, s.pressed = append(s.at, at), append(s.pressed, pressed)
	return nil
}

func (s *series) row(lanes int) IndexRow {
	row := IndexRow{Index: s.name, Lanes: lanes, Offered: s.rate(), Sustained: s.lo, Trials: len(s.at), GeneratorValid: true}
	for _, t := range s.at {
		row.GeneratorValid = row.GeneratorValid && t.GeneratorValid
		if t.Sustained {
			row.Held++
		}
	}
	row.AchievedCI, row.CapacityCI = estimate(figures(s.at, achieved), s.name), estimate(figures(s.pressed, achieved), s.name)
	row.P50CI, row.P99CI = estimate(figures(s.at, p50), s.name), estimate(figures(s.at, p99), s.name)
	row.Achieved, row.Capacity = row.AchievedCI.Median, row.CapacityCI.Median
	row.Lookup = Percentiles{row.P50CI.Median, row.P99CI.Median, median(figures(s.at, p999))}
	row.BytesPerMembership = median(figures(s.at, perBlock))
	row.GC = drive.GC{
		Cycles:  int64(median(figures(s.at, func(t *drive.Result) float64 { return float64(t.GC.Cycles) }))),
		PauseUs: median(figures(s.at, func(t *drive.Result) float64 { return t.GC.PauseUs })),
		MaxUs:   median(figures(s.at, func(t *drive.Result) float64 { return t.GC.MaxUs })),
	}
	return row
}

// against is the control's figures over those of the series it repeats.
func (s *series) against(first *series) *Control {
	return &Control{Index: s.name,
		Achieved: ratio(figures(s.at, achieved), figures(first.at, achieved), "achieved"),
		Capacity: ratio(figures(s.pressed, achieved), figures(first.pressed, achieved), "capacity"),
		P99:      ratio(figures(s.at, p99), figures(first.at, p99), "p99")}
}

// compare holds the first row against the others.
func compare(rows []IndexRow) (out []Comparison) {
	over := func(a, b float64) float64 {
		if b <= 0 {
			return 0
		}
		return a / b
	}
	for i := range rows {
		if r, first := &rows[i], &rows[0]; i > 0 && r.Index != drive.Null {
			out = append(out, Comparison{Over: r.Index, Sustained: over(first.Sustained, r.Sustained), Capacity: over(first.Capacity, r.Capacity),
				P99: over(r.Lookup.P99, first.Lookup.P99), Bytes: over(r.BytesPerMembership, first.BytesPerMembership)})
		}
	}
	return out
}
