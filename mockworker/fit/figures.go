package fit

import (
	"math"
	"slices"
)

// Times are what is measured of one request, in ns.
type Times struct {
	TTFT, Latency int64
	// Output is its tokens; with one there is no TPOT.
	Output int
}

// TPOT is the time per output token after the first, in ns.
func (t Times) TPOT() (ns float64, ok bool) {
	if t.Output < 2 {
		return 0, false
	}
	return float64(t.Latency-t.TTFT) / float64(t.Output-1), true
}

// Real are a recorded request's times.
func (q Request) Real() Times {
	return Times{TTFT: q.First - q.Queued, Latency: q.Last - q.Queued, Output: q.Output}
}

// Real are the times of the first n requests.
func (r *Run) Real(n int) []Times {
	out := make([]Times, n)
	for i := range out {
		out[i] = r.Requests[i].Real()
	}
	return out
}

// Figure names, in the order of tables.
var (
	metrics    = [...]string{"TTFT", "TPOT", "latency"}
	statistics = [...]string{"mean", "p50", "p90", "p99"}
)

// numFigures is how many numbers a fit is judged by.
const numFigures = len(metrics) * len(statistics)

// Error is one figure beside the recorded one.
type Error struct {
	// Figure is such as "TTFT p90".
	Figure string `json:"figure"`
	// Real and Model are in seconds; Error is their relative difference, positive when the model is slower.
	Real  float64 `json:"real"`
	Model float64 `json:"model"`
	Error float64 `json:"error"`
}

// Compare gives the twelve figures of the recorded and the modelled times.
func Compare(real, model []Times) []Error {
	a, b := figures(real), figures(model)
	out := make([]Error, numFigures)
	for i := range out {
		out[i] = Error{
			Figure: metrics[i/len(statistics)] + " " + statistics[i%len(statistics)],
			Real:   a[i], Model: b[i], Error: b[i]/a[i] - 1,
		}
	}
	return out
}

// Worst is the figure with the largest relative error.
func Worst(errs []Error) Error {
	return slices.MaxFunc(errs, func(a, b Error) int {
		x, y := math.Abs(a.Error), math.Abs(b.Error)
		switch {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
}

// figures are the twelve, in seconds.
func figures(times []Times) (out [numFigures]float64) {
	var values [len(metrics)][]float64
	for _, t := range times {
		values[0] = append(values[0], float64(t.TTFT)/1e9)
		if v, ok := t.TPOT(); ok {
			values[1] = append(values[1], v/1e9)
		}
		values[2] = append(values[2], float64(t.Latency)/1e9)
	}
	for m, v := range values {
		copy(out[m*len(statistics):], statisticsOf(v))
	}
	return out
}

func statisticsOf(v []float64) []float64 {
	if len(v) == 0 {
		return make([]float64, len(statistics))
	}
	slices.Sort(v)
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return []float64{sum / float64(len(v)), quantile(v, 0.5), quantile(v, 0.9), quantile(v, 0.99)}
}

// quantile of sorted values, linear between the two nearest.
func quantile(sorted []float64, p float64) float64 {
	at := float64(len(sorted)-1) * p
	i := int(at)
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}
