package mockworker

import (
	"testing"

	"fleetdrill/mockworker/truth"
)

// What is announced while something is broken, and how that differs from what the engine has: two blocks of a
// prompt before the fault, all ten of it and ten of another one after. The pool holds sixteen, so that
// four or more of the first prompt's are evicted where there is a second one.
func TestWhatIsAnnouncedThen(t *testing.T) {
	for _, c := range []struct {
		body               string
		second             bool
		unannounced, ghost int
	}{
		{`{"kind":"unknown_event","count":9}`, true, 0, 0},
		{`{"kind":"unknown_field","count":9}`, true, 0, 0},
		{`{"kind":"duplicate"}`, true, 0, 0},
		{`{"kind":"reorder"}`, true, 0, 0},
		{`{"kind":"corrupt","field":"topic"}`, true, 0, 0},
		{`{"kind":"corrupt","field":"seq"}`, true, 0, 0},
		{`{"kind":"corrupt","field":"parent"}`, false, 0, 0},
		{`{"kind":"corrupt","field":"tokens"}`, false, 0, 0},
		{`{"kind":"corrupt","field":"hash"}`, false, 1, 1},
		{`{"kind":"corrupt"}`, false, 8, 0},
		{`{"kind":"truncate"}`, false, 8, 0},
		{`{"kind":"unknown_parent"}`, false, 8, 0},
		{`{"kind":"masked_store"}`, false, 8, 0},
		{`{"kind":"masked_store","mask":"all"}`, false, 8, 0},
		{`{"kind":"drop_batches","count":1,"replay":"lose"}`, false, 8, 0},
		{`{"kind":"mute_publisher"}`, false, 8, 0},
		{`{"kind":"mute_removals"}`, true, 0, 4},
		{`{"kind":"mute_removals","tier":"host"}`, true, 0, 0},
		{`{"kind":"mute_stores"}`, false, 8, 0},
		// Of four evicted blocks, tail first, the last one's parent is still there.
		{`{"kind":"stale_store"}`, true, 0, 1},
		{`{"kind":"late_removals","by":"1h"}`, true, 0, 4},
		// Eight blocks with a second copy that no removal takes away; those four that are evicted stay.
		{`{"kind":"duplicate","of":"store"}`, true, 0, 4},
		// Only the last block has one, and it is the first to go.
		{`{"kind":"duplicate","of":"hash"}`, true, 0, 1},
	} {
		t.Run(c.body, func(t *testing.T) {
			f := start(t, func(c *Config) { c.NumGPUBlocksOverride = 17 })
			ids := prompt(1, 160)
			f.complete(ids[:32], 1, "")
			f.truth() // the first batch is out now
			f.arm(c.body)
			f.complete(ids, 1, "")
			if c.second {
				f.complete(prompt(2, 160), 1, "")
			}
			row := f.truth().Ranks[0]
			if row.Unannounced != c.unannounced || row.Ghost != c.ghost {
				t.Errorf("%d unannounced and %d ghosts, want %d and %d: %+v", row.Unannounced, row.Ghost, c.unannounced, c.ghost, row)
			}
			fold := truth.NewFold(16)
			for seq, batches := int64(0), f.replayed(); seq < row.NextSeq; seq++ {
				if payload, ok := batches[seq]; ok {
					_ = fold.Apply(seq, 0, payload) // what cannot be read is nothing to anybody
				}
			}
			if head := fold.Head(); head.Blocks != row.AnnouncedBlocks || head.Digest != uint64(row.Digest) {
				t.Errorf("truth %+v, folded from a replay %+v", row, head)
			}
		})
	}
}
