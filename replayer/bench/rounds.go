package bench

import (
	"context"
	"fmt"
	"time"

	"fleetdrill/replayer/bench/corpus"
	"fleetdrill/replayer/bench/drive"
)

const (
	// fullTrials make a published point, quickTrials a first look.
	fullTrials, quickTrials = 20, 3
	// confirmations are the fresh processes that must all keep a rate up for it to be sustained.
	confirmations = 3
	// noisy is the foreign CPU, in cores, from which a trial is made again.
	noisy = 0.5
	// overload is the rate offered to find out what a lane core can do at most, in block ops per second: no
	// index keeps it up.
	overload = 100e6
)

// Options are what the benches on a corpus have in common.
type Options struct {
	Corpus  *corpus.Corpus
	Path    string // of its cache file
	Indexes []string
	Lanes   int
	// Trials of a series, and how often a trial may be made again because of foreign load, in all.
	Trials   int
	Discards int
	// Quiet, Longest and Patience are those of a trial.
	Quiet, Longest, Patience time.Duration
	Run                      Runner
	// Progress is told what is being done, in a line.
	Progress func(string)
}

// Pace sets how thorough a bench is: the published method, or a first look in minutes.
func (o *Options) Pace(quick bool) {
	o.Trials, o.Discards = fullTrials, fullTrials
	o.Quiet, o.Longest, o.Patience = 5*time.Second, 20*time.Second, 20*time.Second
	if quick {
		o.Trials, o.Discards = quickTrials, 2*quickTrials
		o.Quiet, o.Longest, o.Patience = 300*time.Millisecond, 3*time.Second, 4*time.Second
	}
}

// Machine is what figures depend on besides the program.
type Machine struct {
	LoadAvg float64 `json:"load_avg"`
	Cores   int     `json:"cores"`
	// Discards are trials that were made again because others used the machine, Noisy those that were kept
	// all the same because there were too many.
	Discards int `json:"discards"`
	Noisy    int `json:"noisy"`
}

// rounds runs trials and counts what was thrown away.
type rounds struct {
	ctx context.Context
	o   Options
	Machine
	trials []*drive.Result
}

// say reports progress.
func (r *rounds) say(format string, args ...any) {
	if r.o.Progress != nil {
		r.o.Progress(fmt.Sprintf(format, args...))
	}
}

// trial runs one trial, again if others had more than half a core meanwhile and there is patience left.
func (r *rounds) trial(name string, lanes int, offered float64, change func(*drive.Spec)) (*drive.Result, error) {
	s := drive.Spec{Corpus: r.o.Path, Index: name, Lanes: lanes, Offered: offered, MaxNs: int64(r.o.Longest), QuietNs: int64(r.o.Quiet), PatienceNs: int64(r.o.Patience)}
	if change != nil {
		change(&s)
	}
	for {
		res := new(drive.Result)
		if err := r.o.Run(r.ctx, Task{Replay: &s}, res); err != nil {
			return nil, err
		}
		if err := res.Validate(); err != nil {
			return nil, err
		}
		r.Cores, r.LoadAvg = res.Cores, max(r.LoadAvg, res.LoadAvg)
		if res.Foreign.Cores > noisy {
			if r.Discards < r.o.Discards {
				r.Discards++
				r.say("%s: made again, others used %.2f cores %s", name, res.Foreign.Cores, res.Foreign.Busiest)
				continue
			}
			r.Noisy++
		}
		r.trials = append(r.trials, res)
		return res, nil
	}
}

// holds says whether a rate is sustained in three fresh processes; the first that fails decides.
func (r *rounds) holds(name string, lanes int, offered float64) (bool, error) {
	for range confirmations {
		res, err := r.trial(name, lanes, offered, nil)
		if err != nil || !res.Sustained {
			return false, err
		}
	}
	return true, nil
}

// figures takes one figure of every trial.
func figures(trials []*drive.Result, of func(*drive.Result) float64) []float64 {
	out := make([]float64, len(trials))
	for i, t := range trials {
		out[i] = of(t)
	}
	return out
}

func achieved(t *drive.Result) float64 { return t.Achieved }
func p50(t *drive.Result) float64      { return t.Lookup.P50 }
func p99(t *drive.Result) float64      { return t.Lookup.P99 }
func p999(t *drive.Result) float64     { return t.Lookup.P999 }
func perBlock(t *drive.Result) float64 { return t.BytesPerMembership }
