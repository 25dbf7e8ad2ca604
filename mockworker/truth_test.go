package mockworker

import (
	"context"
	"fmt"
	"testing"

	"fleetdrill/internal/contract"
)

// In the middle of a step that lasts an hour every question is answered: the engine has the blocks of the step
// already, and compared with what was announced it has what it had before.
func TestTruthAnswersWithinALongStep(t *testing.T) {
	path := stepProfile(t, 3600e9)
	f := start(t, func(c *Config) { c.Profile = path })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	ids := prompt(1, 40)
	go func() { defer close(done); f.hang(ctx, `{"prompt":`+jsonOf(t, ids)+`}`) }()
	defer func() { cancel(); <-done }()
	f.eventually("the step to begin", func() bool { return f.match(ids) == `"ranks":[{"rank":0,"blocks":2}]}` })

	asked := f.truth().MonoNs
	row := f.truth().Ranks[0]
	if row.ResidentMonoNs < asked || row.ResidentBlocks != 0 || row.Unannounced != 0 || row.Ghost != 0 {
		t.Errorf("summary within the step, asked at %d: %+v", asked, row)
	}
	for _, set := range []string{"resident", "announced", "unannounced", "ghost"} {
		var head contract.TruthBlocksHead
		if blocks := jsonLines[contract.TruthBlock](f, "/admin/truth/blocks?set="+set, &head); len(blocks) != 0 || head.Seq != -1 {
			t.Errorf("%s within the step: head %+v, %d blocks", set, head, len(blocks))
		}
	}
}

// Every tier and class is announced as it is held, whatever is cached in how many groups.
func TestTruthOfTiersAndClasses(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"host": func(c *Config) { c.HostBlocks = 30 },
		"described host": func(c *Config) {
			c.HostBlocks, c.HostDescribed, c.Wire = 30, true, "vllm-0.32"
		},
		"SGLang host": func(c *Config) { c.HostBlocks, c.Wire = 30, "sglang-map" },
		"SGLang host, written back": func(c *Config) {
			c.HostBlocks, c.HiCacheWritePolicy, c.Wire = 30, "write_back", "sglang-array"
		},
		"window": func(c *Config) { c.KVCacheGroups, c.Wire = "swa:40,full,swa:64", "vllm-0.23" },
		"window of small blocks": func(c *Config) {
			c.KVCacheGroups, c.BlockSize, c.RetentionInterval = "full,swa:24@8", 32, 64
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, func(c *Config) {
				c.NumGPUBlocksOverride = 40
				change(c)
			})
			for i := range 12 {
				f.complete(prompt(i%5, 100+i), 10, "")
			}
			f.complete(prompt(1, 111), 1, "") // stores nothing, so that no copy to a host is under way behind it
			row := f.truth().Ranks[0]
			if len(row.Sets) != 2 || row.Sets[0].Digest != row.Digest || row.Sets[0].Resident != row.ResidentBlocks {
				t.Fatalf("sets of %+v", row)
			}
			for _, s := range row.Sets {
				if s.Resident == 0 || s.Resident != s.Announced || s.Unannounced != 0 || s.Ghost != 0 {
					t.Errorf("set %+v", s)
				}
				f.checkSet(s)
			}
			counters := f.truth().Counters
			for _, skipped := range []string{"announced_undecodable", "announced_orphans", "announced_unknown_removals", "announced_other_events"} {
				if counters[skipped] != 0 {
					t.Errorf("%s: %d", skipped, counters[skipped])
				}
			}
		})
	}
}

// checkSet compares the blocks held and announced of one tier and class: hashes and copies, and where the
// events told it, the place.
func (f *fleet) checkSet(s contract.TruthSet) {
	f.t.Helper()
	ask := func(set string) map[contract.U64]contract.TruthBlock {
		path := fmt.Sprintf("/admin/truth/blocks?set=%s&tier=%s&class=%s", set, s.Tier, s.Class)
		var head contract.TruthBlocksHead
		rows := map[contract.U64]contract.TruthBlock{}
		for _, b := range jsonLines[contract.TruthBlock](f, path, &head) {
			rows[b.Hash] = b
		}
		if head.Blocks != s.Resident || head.Digest != s.Digest || len(rows) != s.Resident {
			f.t.Errorf("%s: head %+v, %d rows, set %+v", path, head, len(rows), s)
		}
		return rows
	}
	resident, announced := ask("resident"), ask("announced")
	for hash, b := range resident {
		a := announced[hash]
		if a.Copies != b.Copies || a.Tier != s.Tier || a.Class != s.Class || a.Position >= 0 && (a.Position != b.Position || a.Content != b.Content) {
			f.t.Errorf("announced %+v, held %+v", a, b)
		}
	}
}
