package engine

// Weights of the newest value in the averages of the load report, as the published mock has them.
const (
	genRateWeight = 0.3
	hitRateWeight = 0.2
)

// average is an exponentially weighted moving average; the first value counts whole.
type average struct {
	weight, value float64
	any           bool
}

func (a *average) add(v float64) {
	if !a.any {
		a.value, a.any = v, true
		return
	}
	// Two products rounded on their own, so that no machine fuses them.
	a.value = float64(a.weight*v) + float64((1-a.weight)*a.value)
}

// noteRate counts a pass of ns that decoded. One that only prefilled says nothing about the rate.
func (e *Engine) noteRate(w Pass, ns int64) {
	if w.decodeSeqs == 0 || ns <= 0 {
		return
	}
	const second = 1e9
	e.genRate.add(float64(w.decodeSeqs) * second / float64(ns))
}
