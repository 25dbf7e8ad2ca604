package sim

import (
	"testing"
	"time"

	"fleetdrill/gateway/policy"
	"fleetdrill/mockworker/late"
)

// Late removals make the gateway promise what is gone, and change nothing for engines whose requests it
// places without looking.
func TestLateRemovals(t *testing.T) {
	c := small(t)
	c.NumBlocks = 3000
	_, truthful := run(t, c)
	for name, o := range map[string]late.Options{"by time": {By: 20 * time.Second}, "by steps": {Steps: 2000}} {
		c := c
		c.Late = o
		r, s := run(t, c)
		if s.Credit.Over <= truthful.Credit.Over {
			t.Errorf("%s: %d requests were promised too much, %d with truthful removals", name, s.Credit.Over, truthful.Credit.Over)
		}
		if s.OK != truthful.OK {
			t.Errorf("%s: %d requests ok, %d with truthful removals", name, s.OK, truthful.OK)
		}
		for _, k := range r.Ranks {
			if k.Counters.Gaps != 0 || k.Counters.Orphans != 0 {
				t.Errorf("%s: %+v", name, k.Counters)
			}
		}
		if digest(t, c) != s.Digest {
			t.Errorf("%s: a second run is another", name)
		}
	}
	c.Policy = policy.RoundRobin
	_, a := run(t, c)
	c.Late = late.Options{By: time.Second}
	_, b := run(t, c)
	if a.TTFT != b.TTFT || a.Cached != b.Cached {
		t.Error("late removals change engines whose requests are placed without looking")
	}
}

// The flags that override a profile reach the engines.
func TestEngineOverrides(t *testing.T) {
	c := small(t)
	_, wide := run(t, c)
	c.MaxNumSeqs = 1
	_, one := run(t, c)
	if one.TTFT.P99 <= wide.TTFT.P99 {
		t.Errorf("TTFT p99 of one sequence at a time %v, of many %v", one.TTFT.P99, wide.TTFT.P99)
	}
	c.MaxNumSeqs, c.MaxNumBatchedTokens = 0, 64
	_, few := run(t, c)
	if few.TTFT.P50 <= wide.TTFT.P50 {
		t.Errorf("TTFT p50 of 64 tokens a step %v, of many %v", few.TTFT.P50, wide.TTFT.P50)
	}
	c.Late.Steps = -1
	if _, err := Run(t.Context(), c); err == nil {
		t.Error("removals may be early")
	}
}
