package policy

import "testing"

// Hot holders do not raise the mean that they are compared with: only the fair draw counts.
func TestHoldersOutsideTheDrawDoNotRaiseTheMean(t *testing.T) {
	cands := make([]Candidate, 32)
	for i := range cands {
		cands[i] = Candidate{Prompt: 4096, BlockSize: 16, Reported: true, InFlight: 4}
		if i >= 16 {
			cands[i].Overlap, cands[i].InFlight = 2048, 20 // twice the mean of all 32 would be 24
		}
	}
	var w Warmup
	got, fresh := w.PickFrom(0, false, cands, Sample{Fair: 16, Workers: 128}, picker(t, CacheAware, 1))
	if fresh || got.Branch != BranchSpill || got.Index >= 16 {
		t.Errorf("%+v, fresh %v: want a spill to the draw", got, fresh)
	}
}

// Shares are bounded by what the whole fleet got, not by what the draw did.
func TestSharesOfASample(t *testing.T) {
	cands := make([]Candidate, 16)
	for i := range cands {
		cands[i] = Candidate{Reported: true, Recent: 12, Waiting: 5}
	}
	cands[3] = Candidate{Reported: true, Recent: 26}
	cands[7].Recent = 11
	for _, c := range []struct{ recent, index int }{
		{1280, 7}, // 2.5 x 10 = 25: not the idle one, but some of the others
		{2560, 3}, // twice as many on everyone: the idle one is below its bound
		{128, 7},  // all have had their share: the one with least
	} {
		for seed := range uint64(20) {
			var w Warmup
			got, fresh := w.PickFrom(0, false, cands, Sample{Fair: 16, Workers: 128, Recent: c.recent}, picker(t, CacheAware, seed))
			if !fresh || c.recent == 1280 && got.Index == 3 || c.recent != 1280 && got.Index != c.index {
				t.Errorf("%d recent, seed %d: %+v, fresh %v", c.recent, seed, got, fresh)
			}
		}
	}
}
