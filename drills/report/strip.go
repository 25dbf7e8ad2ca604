package report

import (
	"fmt"
	"math"

	"fleetdrill/drills/record"
	"fleetdrill/replayer/load"
)

// ttftStrip plots the time to first token of every request at its scheduled instant: a stall then shows as
// a ramp that falls from its beginning, where at the instants of the tokens it would show as one dot.
func ttftStrip(rec *record.Record, s scale, zero int64, y float64) (*strip, float64) {
	// The scale is set by what is in the picture: a slow request of the warm-up must not flatten the rest.
	top := 0.0
	for _, q := range rec.Requests {
		if q.FirstNs != 0 && s.has(q.ScheduledNs) {
			top = max(top, float64(q.FirstNs-q.ScheduledNs)/1e9)
		}
	}
	if top == 0 {
		return nil, y
	}
	top = niceTop(top)
	st := &strip{Y: y, H: stripH, Mid: y + stripH/2 + 4, Max: seconds(top), MaxY: y + 4, HalfY: y + stripH/2, Caption: "TTFT"}
	keep := thinning(rec)
	for i, q := range rec.Requests {
		// Only what succeeded is thinned; a failure with a first token is rare and wanted.
		if q.FirstNs == 0 || !s.has(q.ScheduledNs) || (q.Outcome == load.OutcomeOK && i%keep != 0) {
			continue
		}
		v := float64(q.FirstNs-q.ScheduledNs) / 1e9
		st.Dots = append(st.Dots, point{X: s.x(q.ScheduledNs), Y: round(y + stripH - 2 - (stripH-6)*v/top), Class: "ttft-" + q.Outcome,
			Title: fmt.Sprintf("request %s/%d on %s: first token after %.3f s", q.Load, q.N, q.Worker, v)})
	}
	return st, y + stripH + 4
}

// niceTop rounds up to 1, 2 or 5 times a power of ten.
func niceTop(v float64) float64 {
	p := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5, 10} {
		if v <= m*p {
			return m * p
		}
	}
	return 10 * p
}

// seconds words a scale's end in the unit that people say it in.
func seconds(v float64) string {
	if v < 1 {
		return fmt.Sprintf("%.0f ms", v*1000)
	}
	return fmt.Sprintf("%.3g s", v)
}
