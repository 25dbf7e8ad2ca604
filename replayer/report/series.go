package report

import (
	"math"
	"slices"

	"fleetdrill/replayer/result"
)

// targetBins is about how many points a picture over time has.
const targetBins = 60

// binSteps are the widths of a bin that people can read, in seconds.
var binSteps = [...]float64{0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600}

// bins cuts the window of a replay into equal stretches of time.
type bins struct {
	width float64 // seconds
	n     int
}

func newBins(windowS float64) bins {
	width := binSteps[len(binSteps)-1]
	for _, step := range binSteps {
		if windowS/step <= targetBins {
			width = step
			break
		}
	}
	return bins{width, int(windowS/width) + 1}
}

// of is the bin of an instant, in ns.
func (b bins) of(ns int64) int { return min(max(int(float64(ns)/1e9/b.width), 0), b.n-1) }

// mid is the middle of a bin, in seconds.
func (b bins) mid(i int) float64 { return (float64(i) + 0.5) * b.width }

// overTime is one figure per bin; a bin without requests has none (NaN).
type overTime struct {
	offered, good, ttft, hit, balance []float64
}

// measure computes the figures of one run. Requests count in the bin in which they were due; warm-up ones
// are shown, since they were sent.
func measure(b bins, slo result.SLO, workers []string, requests []result.Request) overTime {
	of := make([][]*result.Request, b.n)
	for i := range requests {
		k := b.of(requests[i].ScheduledNs)
		of[k] = append(of[k], &requests[i])
	}
	var t overTime
	for _, rs := range of {
		t.offered = append(t.offered, float64(len(rs))/b.width)
		t.good = append(t.good, float64(goodOf(slo, rs))/b.width)
		t.ttft = append(t.ttft, medianTTFT(rs))
		t.hit = append(t.hit, hitOf(rs))
		t.balance = append(t.balance, balanceOf(workers, rs))
	}
	return t
}

func goodOf(slo result.SLO, rs []*result.Request) (n int) {
	for _, r := range rs {
		if mean, _ := slo.Kept(r); mean {
			n++
		}
	}
	return n
}

// medianTTFT is in ms.
func medianTTFT(rs []*result.Request) float64 {
	var all []int64
	for _, r := range rs {
		if r.TTFTNs > 0 {
			all = append(all, r.TTFTNs)
		}
	}
	if len(all) == 0 {
		return math.NaN()
	}
	slices.Sort(all)
	return float64(all[(len(all)-1)/2]) / 1e6
}

// hitOf is cached over prompt tokens of the ok requests.
func hitOf(rs []*result.Request) float64 {
	cached, prompt := 0, 0
	for _, r := range rs {
		if r.Outcome == result.OK {
			cached += r.Cached
			prompt += r.PromptTokens
		}
	}
	if prompt == 0 {
		return math.NaN()
	}
	return float64(cached) / float64(prompt)
}

// balanceOf is the busiest worker's requests over the mean of all workers.
func balanceOf(workers []string, rs []*result.Request) float64 {
	n := map[string]int{}
	most, all := 0, 0
	for _, r := range rs {
		if slices.Contains(workers, r.Worker) {
			n[r.Worker]++
			all++
			most = max(most, n[r.Worker])
		}
	}
	if all == 0 {
		return math.NaN()
	}
	return float64(most*len(workers)) / float64(all)
}

// xy is one point of a line.
type xy struct{ x, y float64 }

// timeline pairs values with the middles of their bins.
func timeline(b bins, values []float64) []xy {
	out := make([]xy, len(values))
	for i, v := range values {
		out[i] = xy{b.mid(i), v}
	}
	return out
}

// cdfSteps is how many points a distribution has.
const cdfSteps = 200

// cdf is the share of values that are at most x, at evenly spaced shares. It sorts values.
func cdf(values []float64) []xy {
	if len(values) == 0 {
		return nil
	}
	slices.Sort(values)
	out := make([]xy, 0, cdfSteps+1)
	for i := range cdfSteps + 1 {
		share := float64(i) / cdfSteps
		out = append(out, xy{values[int(share*float64(len(values)-1))], share})
	}
	return out
}
