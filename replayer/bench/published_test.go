package bench

import (
	"strings"
	"testing"

	"fleetdrill/gateway/index/kinds"
)

// Who asks for one rate is not told that the highest one is missed.
func TestOneRateSaysNothingOfTheHighest(t *testing.T) {
	row := IndexRow{Index: kinds.Chain, Lanes: 1, Offered: 8e6, Achieved: 8e6}
	for _, c := range []struct {
		capacity float64
		want     bool
	}{{0, false}, {9e6, true}} {
		row.Capacity = c.capacity
		figures := published(&IndexReport{Rows: []IndexRow{row}})
		if got := len(figures) > 0 && strings.HasPrefix(figures[0].Name, "sustained"); got != c.want {
			t.Errorf("capacity %v: sustained is held against bars %t", c.capacity, got)
		}
	}
}
