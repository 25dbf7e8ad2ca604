package report

import (
	"fmt"
	"math"
	"strconv"

	"fleetdrill/drills/record"
)

// Measures of the index strip: eight workers take as much room as three lanes.
const (
	indexRowH = 6.0
	indexGap  = 2.0
)

// farOff is the share of announced blocks from which a count is drawn as far off: the bound that the
// release matrix sets for an index rebuilt from its relay.
const farOff = 0.01

// indexStrip says, worker by worker, whether the gateway's index was equal to what the engine had
// announced.
type indexStrip struct {
	Y, H, Mid float64
	Rows      []indexRow
}

// indexRow is one worker, the worst of its ranks.
type indexRow struct {
	Y, H float64
	Segs []segment
}

// indexRows draws the strip, nil when no index was ever compared.
func indexRows(rec *record.Record, s scale, zero int64, y float64) (*indexStrip, float64) {
	out := &indexStrip{Y: y}
	known := false
	for _, w := range rec.Workers {
		row := indexRow{Y: y, H: indexRowH, Segs: indexSegments(rec, s, zero, w)}
		known = known || len(row.Segs) > 0
		out.Rows = append(out.Rows, row)
		y += indexRowH + indexGap
	}
	if !known {
		return nil, out.Y
	}
	out.H = y - out.Y
	out.Mid = out.Y + out.H/2 + 3
	return out, y + 4
}

// indexSegments merges samples of one state. The two sides can be compared only where they were read at
// one sequence number, which under load is not every sample; a state is carried over what lies between
// two comparisons as long as the judge would: up to max_gap.
func indexSegments(rec *record.Record, s scale, zero int64, w string) []segment {
	var out []segment
	var lastNs int64
	for k := range rec.Samples {
		now := rec.Samples[k].ReceivedNs
		class, words := indexState(rec, k, w)
		if class == "" {
			continue
		}
		if now >= s.from && now <= s.to {
			x, end := s.x(now), s.x(now+rec.PeriodNs)
			if n := len(out); n > 0 && now-lastNs <= rec.MaxGapNs+rec.PeriodNs {
				// The older state holds until the newer one is known.
				out[n-1].W = round(x - out[n-1].X)
				if out[n-1].Class == class {
					out[n-1].W = round(end - out[n-1].X)
					lastNs = now
					continue
				}
			}
			out = append(out, segment{x, round(end - x), class, fmt.Sprintf("%s: %s from %s", w, words, at(now, zero))})
		}
		lastNs = now
	}
	return out
}

// indexState is what sample k says of a worker's index: the worst of its ranks, empty when a rank could
// not be compared and none is known to differ.
func indexState(rec *record.Record, k int, w string) (class, words string) {
	v := rec.Samples[k].Values
	equal, worst := true, 0.0
	for rank := range max(1, rec.Ranks) {
		of := "(" + w + "/" + strconv.Itoa(rank) + ")"
		e, ok := v["index_equal"+of]
		if !ok {
			equal = false
			continue
		}
		if e == 0 {
			// Equal counts of different blocks still differ.
			worst = max(worst, v["count_error"+of], math.SmallestNonzeroFloat64)
		}
	}
	switch {
	case worst >= farOff:
		return "idx-far", fmt.Sprintf("index differs, its count by %.1f %%", worst*100)
	case worst > 0:
		return "idx-off", fmt.Sprintf("index differs, its count by %.1f %%", worst*100)
	case equal:
		return "idx-eq", "index equal to the engine's announcements"
	}
	return "", ""
}
