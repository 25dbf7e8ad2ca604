package trace

import (
	"slices"
	"strconv"

	"fleetdrill/internal/rng"
)

// Raw are the arrival offsets of rows at their stamps: ns after the first stamp. stamps must not decrease.
func Raw(stamps []int64) []int64 {
	out := make([]int64, len(stamps))
	for i, s := range stamps {
		out[i] = s - stamps[0]
	}
	return out
}

// Spread are the arrival offsets, in ns after the first stamp, of rows that are spread over the slots their
// stamps stand for: rows that share a stamp come at uniformly random instants of [stamp, next distinct
// stamp), in the order of the trace. The last slot is as wide as the one before it, and a trace of one slot
// has no width. stamps must not decrease.
//
// A published trace that counts in steps of 3 s would otherwise send its rows as volleys. A slot's draws
// depend on the seed, its stamp and how many rows it has, not on which other rows were selected.
func Spread(stamps []int64, seed uint64) []int64 {
	out := Raw(stamps)
	width := int64(0)
	for from := 0; from < len(stamps); {
		to := from + 1
		for to < len(stamps) && stamps[to] == stamps[from] {
			to++
		}
		if to < len(stamps) {
			width = stamps[to] - stamps[from]
		}
		spreadSlot(out[from:to], stamps[from], width, seed)
		from = to
	}
	return out
}

// spreadSlot moves the offsets of one slot, which are equal, by up to width.
func spreadSlot(offsets []int64, stamp, width int64, seed uint64) {
	if width == 0 {
		return
	}
	draw := rng.Stream(seed, "arrivals/"+strconv.FormatInt(stamp, 10))
	for i := range offsets {
		offsets[i] += draw.Int64N(width)
	}
	// Sorted uniform draws are the same process, and the rows stay in the order of the trace.
	slices.Sort(offsets)
}
