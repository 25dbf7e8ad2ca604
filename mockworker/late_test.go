package mockworker

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"fleetdrill/internal/contract"
	"fleetdrill/mockworker/late"
)

// Late removals leave announced larger than resident for a while, and equal in the end: when their time has
// come, or their steps, or the engine has none to wait for.
func TestLateRemovals(t *testing.T) {
	for _, o := range []late.Options{{By: 300 * time.Millisecond}, {Steps: 100_000}} {
		t.Run(fmt.Sprint(o), func(t *testing.T) {
			f := start(t, func(c *Config) { c.NumGPUBlocksOverride, c.LateRemovals = 17, o })
			f.complete(prompt(1, 160), 1, "")
			f.complete(prompt(2, 160), 1, "") // evicts some of the first
			row := f.truth().Ranks[0]
			if row.Ghost == 0 || row.Unannounced != 0 {
				t.Fatalf("right after an eviction: %+v", row)
			}
			f.eventually("the removals to be announced by an idle engine", func() bool { return f.truth().Ranks[0].Ghost == 0 })
			f.checkResident()
			journal := jsonLines[contract.TruthJournal](f, "/admin/truth/journal?from=0", nil)
			if last := journal[len(journal)-1]; len(last.Removed) == 0 || len(last.Stored) != 0 {
				t.Errorf("the last batch should be of removals alone: %+v", last)
			}
		})
	}
}

func TestLateRemovalsAreChecked(t *testing.T) {
	for _, o := range []late.Options{{By: time.Second, Steps: 1}, {By: -1}, {Steps: late.MaxSteps + 1}} {
		c := defaults()
		c.LateRemovals = o
		if err := Validate(c); err == nil || !strings.Contains(err.Error(), "--late-removals-by") {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
