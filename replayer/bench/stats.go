package bench

import (
	"math"
	"slices"

	"fleetdrill/internal/rng"
)

// Estimate is a median and its 95 % confidence interval, by bootstrap.
type Estimate struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}

// resamples of a bootstrap (the published method).
const resamples = 10_000

// estimate is the median of xs and its interval: the 2.5th and 97.5th percentile of the medians of 10,000
// samples drawn from xs with replacement. Equal arguments give equal intervals.
func estimate(xs []float64, name string) Estimate {
	return bootstrap(len(xs), name, func(pick []int) float64 {
		sample := make([]float64, len(pick))
		for i, k := range pick {
			sample[i] = xs[k]
		}
		return median(sample)
	})
}

// ratio is the median of a over the median of b, whose trials were made in turns: pairs are drawn together,
// so that what both had in common does not widen the interval.
func ratio(a, b []float64, name string) Estimate {
	return bootstrap(min(len(a), len(b)), name, func(pick []int) float64 {
		x, y := make([]float64, len(pick)), make([]float64, len(pick))
		for i, k := range pick {
			x[i], y[i] = a[k], b[k]
		}
		if m := median(y); m > 0 {
			return median(x) / m
		}
		return 0
	})
}

func bootstrap(n int, name string, of func(pick []int) float64) Estimate {
	if n == 0 {
		return Estimate{}
	}
	pick := make([]int, n)
	for i := range pick {
		pick[i] = i
	}
	e := Estimate{Median: of(pick)}
	draw := rng.Stream(1, "bench/bootstrap/"+name)
	found := make([]float64, resamples)
	for i := range found {
		for k := range pick {
			pick[k] = draw.IntN(n)
		}
		found[i] = of(pick)
	}
	slices.Sort(found)
	e.Low, e.High = found[resamples*25/1000], found[resamples*975/1000-1]
	return e
}

// median sorts xs; 0 for none.
func median(xs []float64) float64 {
	n := len(xs)
	if n == 0 {
		return 0
	}
	slices.Sort(xs)
	return (xs[(n-1)/2] + xs[n/2]) / 2
}

const (
	// upBy and downBy are the steps in which a bracket is looked for, narrow how close its ends come.
	upBy, downBy, narrow = 1.25, 1.5, 1.1
	// maxSteps bounds the search on either side: 1.25^16 is 35 times the start, 1.5^16 below a 600th of it.
	maxSteps = 16
)

// bracket finds the highest rate that holds: rates that hold and that do not, no more than 10 % apart. It
// looks up or down from start, then halves geometrically. lo is 0 when nothing holds, hi 0 when everything
// does.
func bracket(start float64, holds func(rate float64) (bool, error)) (lo, hi float64, err error) {
	for rate, step := start, 0; step < maxSteps && (lo == 0 || hi == 0); step++ {
		ok, err := holds(rate)
		switch {
		case err != nil:
			return lo, hi, err
		case ok:
			lo = rate
			rate *= upBy
		default:
			hi = rate
			rate /= downBy
		}
	}
	for lo > 0 && hi > lo*narrow {
		mid := math.Sqrt(lo * hi)
		ok, err := holds(mid)
		switch {
		case err != nil:
			return lo, hi, err
		case ok:
			lo = mid
		default:
			hi = mid
		}
	}
	return lo, hi, nil
}
