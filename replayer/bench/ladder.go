package bench

import (
	"context"
	"fmt"
	"time"

	"fleetdrill/gateway/index/kinds"
	"fleetdrill/replayer/bench/drive"
)

// LadderRow is one index in one window.
type LadderRow struct {
	Index          string      `json:"index"`
	Lanes          int         `json:"lanes"`
	WindowMs       float64     `json:"window_ms"`
	Offered        float64     `json:"offered"`
	Achieved       float64     `json:"achieved"`
	KeptUp         bool        `json:"kept_up"`
	Sustained      bool        `json:"sustained"`
	GeneratorValid bool        `json:"generator_valid"`
	Complete       bool        `json:"complete"`
	Lookup         Percentiles `json:"lookup_us"`
}

// LadderReport is what `bench ladder` found.
type LadderReport struct {
	Corpus CorpusInfo `json:"corpus"`
	Machine
	Rows   []LadderRow     `json:"rows"`
	Trials []*drive.Result `json:"trials"`
}

// Windows are the rungs of the ladder in ms for the whole corpus: what the published one used, stretched so
// that at two million block ops per second and lane the first one is easy and the last one too much.
func Windows(blockOps uint64, lanes int) (out []time.Duration) {
	for _, rate := range []float64{2e6, 4e6, 8e6, 16e6, 32e6} {
		out = append(out, time.Duration(float64(blockOps)/(rate*float64(lanes))*1e9))
	}
	return out
}

// Ladder replays every window into every index once.
func Ladder(ctx context.Context, o Options, windows []time.Duration) (*LadderReport, error) {
	r := &rounds{ctx: ctx, o: o}
	out := &LadderReport{Corpus: Info(o.Corpus)}
	total := float64(o.Corpus.Totals.BlockOps())
	for _, window := range windows {
		for _, name := range o.Indexes {
			r.say("%s: the corpus in %s", name, window.Round(time.Millisecond))
			t, err := r.trial(name, o.Lanes, total/window.Seconds(), nil)
			if err != nil {
				return nil, err
			}
			out.Rows = append(out.Rows, LadderRow{Index: name, Lanes: o.Lanes, WindowMs: t.WindowMs, Offered: t.Offered, Achieved: t.Achieved, KeptUp: t.KeptUp,
				Sustained: t.Sustained, GeneratorValid: t.GeneratorValid, Complete: t.Complete, Lookup: Percentiles{t.Lookup.P50, t.Lookup.P99, t.Lookup.P999}})
		}
	}
	out.Machine, out.Trials = r.Machine, r.trials
	return out, nil
}

// ScalingRow is what so many lanes did for so many workers, under overload.
type ScalingRow struct {
	Index   string `json:"index"`
	Shards  int    `json:"shards"`
	Workers int    `json:"workers"`
	Lanes   int    `json:"lanes"`
	// Capacity is the median achieved rate.
	Capacity float64     `json:"capacity"`
	Lookup   Percentiles `json:"lookup_us"`
	// FromLinear is the capacity over lanes times that of one lane of the same workers and shards, less 1;
	// FromFirst that over the capacity with the fewest workers on the same lanes and shards, less 1.
	FromLinear float64 `json:"from_linear"`
	FromFirst  float64 `json:"from_first"`
}

// ScalingReport is what `bench scaling` found.
type ScalingReport struct {
	Corpus CorpusInfo `json:"corpus"`
	Machine
	Rows   []ScalingRow    `json:"rows"`
	Trials []*drive.Result `json:"trials"`
}

// ScalingWorkers are the fleets of `bench scaling`.
var ScalingWorkers = [...]int{8, 16, 32, 64, 128}

// Scaling measures the chain index on one and two shards with 8 to 128 workers and 1 to lanes lanes. Fewer
// workers are the corpus' first ones: their events are the same, whoever else is there.
func Scaling(ctx context.Context, o Options, lanes int) (*ScalingReport, error) {
	r := &rounds{ctx: ctx, o: o}
	out := &ScalingReport{Corpus: Info(o.Corpus)}
	trials := max(1, o.Trials/quickTrials)
	for _, shards := range []int{1, 2} {
		name := kinds.Chain
		if shards > 1 {
			name = fmt.Sprintf("sharded:%d", shards)
		}
		for _, workers := range ScalingWorkers {
			if uint64(workers) > o.Corpus.Workers {
				continue
			}
			for l := 1; l <= lanes; l++ {
				r.say("%s: %d workers on %d lanes", name, workers, l)
				row := ScalingRow{Index: name, Shards: shards, Workers: workers, Lanes: l}
				if err := r.scaling(&row, trials); err != nil {
					return nil, err
				}
				out.Rows = append(out.Rows, row)
			}
		}
	}
	deviate(out.Rows)
	out.Machine, out.Trials = r.Machine, r.trials
	return out, nil
}

func (r *rounds) scaling(row *ScalingRow, trials int) error {
	var made []*drive.Result
	for range trials {
		t, err := r.trial(row.Index, row.Lanes, overload*float64(row.Lanes), func(s *drive.Spec) { s.Workers = row.Workers })
		if err != nil {
			return err
		}
		made = append(made, t)
	}
	row.Capacity = median(figures(made, achieved))
	row.Lookup = Percentiles{median(figures(made, p50)), median(figures(made, p99)), median(figures(made, p999))}
	return nil
}

// deviate compares every row with the one it is linear to, and with the smallest fleet.
func deviate(rows []ScalingRow) {
	find := func(shards, workers, lanes int) float64 {
		for i := range rows {
			if r := &rows[i]; r.Shards == shards && r.Workers == workers && r.Lanes == lanes {
				return r.Capacity
			}
		}
		return 0
	}
	for i := range rows {
		r := &rows[i]
		if one := find(r.Shards, r.Workers, 1); one > 0 {
			r.FromLinear = r.Capacity/(one*float64(r.Lanes)) - 1
		}
		if first := find(r.Shards, rows[0].Workers, r.Lanes); first > 0 {
			r.FromFirst = r.Capacity/first - 1
		}
	}
}
