package tokens

import (
	"encoding/json"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"fleetdrill/internal/shared"
)

func TestTextRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(
			rapid.String(),
			rapid.StringMatching(`( [bcd][ae][bcd][ae][xz]| |[a-z]{1,7}){0,20}`),
			rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
		).Draw(t, "text")
		if got := Decode(Encode(text)); got != text {
			t.Fatalf("Decode(Encode(%q)) = %q", text, got)
		}
	})
}

func TestWordIDsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOf(rapid.Uint32Range(FirstWord, Vocab-1)).Draw(t, "ids")
		got := Encode(Decode(ids))
		if len(got) == 0 && len(ids) == 0 {
			return
		}
		if diff := cmp.Diff(ids, got); diff != "" {
			t.Fatalf("ids changed on the way through text (-want +got):\n%s", diff)
		}
	})
}

func TestOutOfVocabularyHasNoText(t *testing.T) {
	if got := Decode([]uint32{Vocab, 1 << 31}); got != "" {
		t.Fatalf("ids outside the vocabulary gave %q", got)
	}
}

// vector is a line of content_hashes.jsonl; hashes are decimal strings.
type vector struct {
	BlockSize int      `json:"block_size"`
	Tokens    []uint32 `json:"tokens"`
	Model     string   `json:"model"`
	LoRA      *string  `json:"lora_name"`
	Salt      *string  `json:"cache_salt"`
	Namespace string   `json:"namespace"`
	Content   []string `json:"content"`
	Chain     []string `json:"chain"`
	Prefix    []string `json:"prefix"`
}

func TestGoldenContentHashes(t *testing.T) {
	for line := range shared.Lines(t, "vectors/content_hashes.jsonl") {
		var v vector
		if err := json.Unmarshal(line, &v); err != nil {
			t.Fatal(err)
		}
		ns := Namespace(v.Model, deref(v.LoRA), deref(v.Salt))
		if got := strconv.FormatUint(ns, 10); got != v.Namespace {
			t.Errorf("namespace(%q, %q, %q) = %s, want %s", v.Model, deref(v.LoRA), deref(v.Salt), got, v.Namespace)
		}
		chain := AppendChain(nil, v.Tokens, v.BlockSize, ns)
		if diff := cmp.Diff(v.Content, decimals(AppendChain(nil, v.Tokens, v.BlockSize, 0))); diff != "" {
			t.Errorf("content hashes (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(v.Chain, decimals(chain)); diff != "" {
			t.Errorf("chain (-want +got):\n%s", diff)
		}
		prefix := chain[:1:1]
		for _, h := range chain[1:] {
			prefix = append(prefix, PrefixNext(prefix[len(prefix)-1], h))
		}
		if diff := cmp.Diff(v.Prefix, decimals(prefix)); diff != "" {
			t.Errorf("prefix hashes (-want +got):\n%s", diff)
		}
	}
}

func TestDigestIsOrderFreeAndInvertible(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set := rapid.SliceOfDistinct(rapid.Uint64(), rapid.ID[uint64]).Draw(t, "set")
		var up, down uint64
		for i := range set {
			up += DigestTerm(set[i])
			down += DigestTerm(set[len(set)-1-i])
		}
		if up != down {
			t.Fatal("digest depends on the order")
		}
		for _, h := range set {
			up -= DigestTerm(h)
		}
		if up != 0 {
			t.Fatal("removing every member leaves a digest")
		}
	})
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func decimals(hs []uint64) []string {
	out := make([]string, len(hs))
	for i, h := range hs {
		out[i] = strconv.FormatUint(h, 10)
	}
	return out
}
