package engine

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"fleetdrill/mockworker/blockhash"
)

// A caller that hashes prompts beforehand gets the same outputs and events, and the same match.
func TestHashesWorkedOutBeforehandChangeNothing(t *testing.T) {
	h, err := blockhash.New("xxhash", "0")
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		c := drawConfig(t, h)
		c.EnablePrefixCaching, c.Groups, c.RetentionInterval = true, nil, 0
		plain, ahead := newModel(t, c), newModel(t, c)
		for n := range rapid.IntRange(1, 8).Draw(t, "requests") {
			r := Request{ID: fmt.Sprint(n), Ref: n, MaxTokens: rapid.IntRange(1, 6).Draw(t, "output"), LoRAID: 1,
				LoRAName: rapid.SampledFrom([]string{"", "a"}).Draw(t, "adapter"), CacheSalt: rapid.SampledFrom([]string{"", "s"}).Draw(t, "salt"),
				Tokens: rapid.SliceOfN(rapid.Uint32Range(1, 2), 1, 20).Draw(t, "prompt")}
			hashed := r
			hashed.Hashes = hashesOf(h, r, c.BlockSize)
			if a, b := plain.e.Match(r.Tokens, r.LoRAName, r.CacheSalt), ahead.e.MatchHashes(hashed.Hashes); a != b {
				t.Fatalf("%d blocks match, by hashes %d", a, b)
			}
			if a, b := plain.e.Add(0, r), ahead.e.Add(0, hashed); fmt.Sprint(a) != fmt.Sprint(b) {
				t.Fatalf("Add: %v and %v", a, b)
			}
			for range rapid.IntRange(0, 3).Draw(t, "steps") {
				a, b := plain.e.Step(0), ahead.e.Step(0)
				if d := cmp.Diff(a, b, cmp.AllowUnexported(blockhash.Digest{})); d != "" {
					t.Fatalf("-hashed by the engine +beforehand\n%s", d)
				}
				for _, out := range a.Outputs {
					if fmt.Sprint(out.Ref) != out.ID {
						t.Fatalf("output of %s has ref %d", out.ID, out.Ref)
					}
				}
			}
		}
	})
}

// hashesOf hashes the full blocks of a prompt.
func hashesOf(h *blockhash.Hasher, r Request, blockSize int) []blockhash.Digest {
	var out []blockhash.Digest
	parent, extra := h.NoneHash(), blockhash.Extra{LoRAName: r.LoRAName, CacheSalt: r.CacheSalt}
	for n := 0; (n+1)*blockSize <= len(r.Tokens); n++ {
		parent = h.Next(parent, r.Tokens[n*blockSize:(n+1)*blockSize], extra)
		out, extra.CacheSalt = append(out, parent), ""
	}
	return out
}
