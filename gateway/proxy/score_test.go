package proxy

import (
	"testing"

	"pgregory.net/rapid"

	"fleetdrill/gateway/fleet"
	"fleetdrill/gateway/index"
)

// Deepest against its meaning: level by level it tells every holder that has anything, deepest first.
func TestDeepestGoesDownLevelByLevel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s Scores
		left := map[int]int{} // holders per overlap in tokens
		for _, size := range []int{16, 32}[:rapid.IntRange(1, 2).Draw(t, "sizes")] {
			scores := rapid.SliceOfN(rapid.Uint32Range(0, 6), 0, 20).Draw(t, "scores")
			s.views, s.byView = append(s.views, fleet.View{BlockSize: size}), append(s.byView, scores)
			for _, n := range scores {
				if n > 0 {
					left[int(n)*size]++
				}
			}
		}
		below, holders := 1<<40, []index.Holder(nil)
		for {
			level := below
			if below, holders = s.Deepest(level, holders[:0]); below == 0 {
				break
			}
			if below >= level || left[below] != len(holders) {
				t.Fatalf("below %d: %d tokens by %v; left %v", level, below, holders, left)
			}
			delete(left, below)
		}
		if len(left) > 0 || len(holders) > 0 {
			t.Fatalf("not told: %v", left)
		}
	})
}
