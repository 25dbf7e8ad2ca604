package loop

import (
	"testing"
	"time"

	"fleetdrill/mockworker/engine"
)

// An idle scheduler tells its last throughput for half a minute, a busy one for as long as it works.
func TestThroughputOfAnIdleEngine(t *testing.T) {
	const last = int64(time.Hour)
	for _, c := range []struct {
		running int
		after   time.Duration
		want    float64
	}{{0, time.Second, 50}, {0, 30 * time.Second, 50}, {0, 31 * time.Second, 0}, {1, time.Hour, 50}} {
		s := Snapshot{Load: engine.Load{Running: c.running, GenRate: 50}, LastStepMonoNs: last}
		if got := s.throughput(last + int64(c.after)); got != c.want {
			t.Errorf("%d running, %v after the last step: %v, want %v", c.running, c.after, got, c.want)
		}
	}
}
