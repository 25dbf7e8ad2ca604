package blockhash

import "testing"

// What must differ does: a token, a parent, an adapter, a salt, and which of the two a text is.
func TestChain64TellsApart(t *testing.T) {
	h := NewChain64()
	tokens := []uint32{1, 2, 3, 4}
	seen := map[Digest]string{h.NoneHash(): "none"}
	for what, d := range map[string]Digest{
		"plain":   h.Next(h.NoneHash(), tokens, Extra{}),
		"token":   h.Next(h.NoneHash(), []uint32{1, 2, 3, 5}, Extra{}),
		"parent":  h.Next(FromInt(7), tokens, Extra{}),
		"adapter": h.Next(h.NoneHash(), tokens, Extra{LoRAName: "a"}),
		"salt":    h.Next(h.NoneHash(), tokens, Extra{CacheSalt: "a"}),
		"both":    h.Next(h.NoneHash(), tokens, Extra{LoRAName: "a", CacheSalt: "a"}),
	} {
		if other, ok := seen[d]; ok {
			t.Errorf("%s and %s have one hash", what, other)
		}
		if seen[d] = what; !d.IsInt() {
			t.Errorf("%s: %d bytes", what, len(d.Bytes()))
		}
	}
	if got := h.Next(h.NoneHash(), tokens, Extra{}); seen[got] != "plain" {
		t.Error("a second call gives another hash")
	}
}

// The value is part of what recorded digests of simulations stand on.
func TestChain64Golden(t *testing.T) {
	h := NewChain64()
	got := h.Next(h.Next(h.NoneHash(), []uint32{1, 2, 3, 4}, Extra{}), []uint32{5, 6, 7, 8}, Extra{})
	if want := "886462db01112c86"; got.String() != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func BenchmarkChain64(b *testing.B) {
	h, tokens := NewChain64(), make([]uint32, 16)
	b.ReportAllocs()
	d := h.NoneHash()
	for b.Loop() {
		d = h.Next(d, tokens, Extra{})
	}
}
