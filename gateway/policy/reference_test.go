package policy

import "testing"

// Costs worked out by hand, in blocks of 16 tokens.
func TestReferenceCost(t *testing.T) {
	for _, c := range []struct {
		what string
		c    Candidate
		want float64
	}{
		{"the request alone", Candidate{BlockSize: 16, Prompt: 100}, 6.25},
		{"cached blocks are credited", Candidate{BlockSize: 16, Prompt: 100, Overlap: 64}, 2.25},
		{"credit never makes a cost negative", Candidate{BlockSize: 16, Prompt: 16, Overlap: 32}, 0},
		{"requests in flight are as long as this one", Candidate{BlockSize: 16, Prompt: 100, InFlight: 3}, 6.25 + 21},
		{"the queue and what is on its way", Candidate{BlockSize: 16, Prompt: 160, Reported: true, KnowsUncached: true, WaitingUncached: 320, OwnUncached: 32, OwnTokens: 900}, 32},
		{"on its way to an empty queue", Candidate{BlockSize: 16, Prompt: 160, Reported: true, KnowsUncached: true, OwnUncached: 32}, 12},
		{"a record without uncached tokens prices the request alone", Candidate{BlockSize: 16, Prompt: 160, Reported: true, Waiting: 9, OwnUncached: 32}, 10},
		{"an old record too", Candidate{BlockSize: 16, Prompt: 160, KnowsUncached: true, WaitingUncached: 320}, 10},
		{"no block size", Candidate{Prompt: 3, InFlight: 2}, 9},
	} {
		if got := reference(&c.c); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}

func TestReferenceTakesTheLeastCostAndTheSmallestURL(t *testing.T) {
	p, err := New(Reference, 1)
	if err != nil {
		t.Fatal(err)
	}
	idle := func(url string) Candidate { return Candidate{URL: url, BlockSize: 16, Prompt: 160} }
	held := idle("http://c")
	held.Overlap, held.InFlight = 80, 0
	busy := held
	busy.InFlight = 3
	for _, c := range []struct {
		what  string
		cands []Candidate
		want  Choice
	}{
		{"ties", []Candidate{idle("http://b"), idle("http://a"), idle("http://c")}, Choice{1, BranchMiss}},
		{"a holder", []Candidate{idle("http://a"), held}, Choice{1, BranchHit}},
		{"a busy holder", []Candidate{idle("http://a"), busy}, Choice{0, BranchSpill}},
	} {
		if got := p.Pick(c.cands); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}
