package sim

import (
	"testing"

	"github.com/cockroachdb/datadriven"

	"fleetdrill/gateway/policy"
	"fleetdrill/replayer/plan"
	"fleetdrill/replayer/result"
)

// TestGolden holds the figures of replays of the built-in trace, every policy in a row of its own:
//
//	replay rows=0-299 workers=8 kv=12000 [load=full] [push]
func TestGolden(t *testing.T) {
	datadriven.RunTest(t, "testdata/policies", func(t *testing.T, d *datadriven.TestData) string {
		c := small(t)
		rows, _ := d.Arg("rows")
		c.Plan = readPlan(t, rows.SingleVal(t), plan.Options{Speed: 3, Seed: 1})
		d.ScanArgs(t, "workers", &c.Workers)
		d.ScanArgs(t, "kv", &c.NumBlocks)
		if load, ok := d.Arg("load"); ok {
			c.LoadReport = load.SingleVal(t)
		}
		c.LoadPush = d.HasArg("push")
		var runs []result.Run
		for _, c.Policy = range policy.Names {
			_, s := run(t, c)
			runs = append(runs, result.Run{Summary: s})
		}
		return result.Text(runs)
	})
}
