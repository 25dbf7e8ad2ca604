package load

import (
	"testing"
	"time"
)

func TestDurationsOutOfRangeCountAtItsEnds(t *testing.T) {
	h := NewHistogram()
	h.Add(-5)
	h.Add(int64(100 * time.Hour))
	if q := h.Quantiles(); q.N != 2 || q.P50 != 0 || q.Max < 3_590_000 {
		t.Errorf("%+v", q)
	}
}
