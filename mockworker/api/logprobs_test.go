package api

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"fleetdrill/internal/tokens"
)

// Whatever the text, each place has a distribution: figures that fall with the rank and add up to 1 at most,
// the token at its rank, no token twice; and the same text has the same ones.
func TestDistributions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		text := rapid.SliceOfN(rapid.Uint32Range(0, tokens.Vocab-1), 1, 20).Draw(t, "text")
		o, again := startOdds(seed), startOdds(seed)
		again.skip(text[:len(text)-1])
		var p place
		for _, id := range text {
			p = o.next(id)
		}
		if q := again.next(text[len(text)-1]); q != p {
			t.Fatalf("the same text gives %+v and %+v", p, q)
		}
		sum, before, seen := 0.0, math.Inf(1), map[uint32]bool{}
		for r := 1; r <= max(p.rank, 300); r++ {
			id, v := p.at(r), p.logprob(r)
			if v > 0 || v > before || seen[id] || id >= tokens.Vocab || (id == p.token) != (r == p.rank) {
				t.Fatalf("rank %d of %+v is token %d with %v", r, p, id, v)
			}
			sum, before, seen[id] = sum+math.Exp(v), v, true
			if got := p.rankOf(id); got != r {
				t.Fatalf("token %d at rank %d of %+v is said to be at %d", id, r, p, got)
			}
		}
		asked := rapid.Uint32Range(0, tokens.Vocab-1).Draw(t, "asked")
		if r := p.rankOf(asked); asked != p.token && r <= words && p.at(r) != asked {
			t.Fatalf("token %d is said to be at rank %d of %+v, where %d is", asked, r, p, p.at(r))
		}
		if sum > 1+1e-6 {
			t.Fatalf("%+v adds up to %v", p, sum)
		}
	})
}

// Whoever asks about a prompt has it computed: nothing is taken from the cache, and no look-up counted.
func TestPromptLogprobsComputeThePrompt(t *testing.T) {
	srv := testServer(t, 1, nil)
	const body = `{"prompt":[300,301,302,303,304,305,306,307,308],"max_tokens":1`
	for _, c := range []struct{ ask, cached string }{
		{"", `"cached_tokens":0`}, {`,"prompt_logprobs":0`, `"cached_tokens":0`}, {`,"echo":true,"logprobs":0`, `"cached_tokens":0`},
		{`,"logprobs":5`, `"cached_tokens":8`},
	} {
		if _, _, text := roundTrip(t, srv.Client(), post(t, srv, "/v1/completions", body+c.ask+"}")); !strings.Contains(text, c.cached) {
			t.Errorf("%q: want %s in %s", c.ask, c.cached, text)
		}
	}
	req := post(t, srv, "/metrics", "")
	req.Method = "GET"
	if _, _, text := roundTrip(t, srv.Client(), req); !strings.Contains(text, `vllm:prefix_cache_queries_total{engine="0",model_name="mock-8b"} 18`) {
		t.Errorf("look-ups were counted:\n%s", text)
	}
}
