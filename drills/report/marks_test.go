package report

import "testing"

// However long a record claims to be, its axis has a few ticks.
func TestAxisHasFewTicks(t *testing.T) {
	for _, span := range []int64{0, 1, 1e9, 15e9, 16e9, 36_000e9, 600_000e9, 265_789_004_001_000_000, 1<<63 - 1} {
		ticks := axis(scale{from: 0, to: span}, 0)
		if len(ticks) < 1 || len(ticks) > 17 {
			t.Errorf("%d ticks for a span of %d ns", len(ticks), span)
		}
	}
	if got := axisStep(16e9); got != 2e9 {
		t.Errorf("16 s have a tick each %d ns, want 2 s", got)
	}
}
