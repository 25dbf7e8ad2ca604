package blockhash

import (
	"encoding/json"
	"strconv"
	"testing"

	"fleetdrill/internal/shared"
)

// pages is a line of sglang_block_hashes.jsonl: pages of tokens, or of pairs of neighbouring tokens.
type pages struct {
	PageSize int           `json:"page_size"`
	Tokens   []uint32      `json:"tokens"`
	Bigrams  [][][2]uint32 `json:"bigram_pages"`
	Salt     string        `json:"cache_salt"`
	Blocks   []struct {
		Digest   string `json:"digest"` // not of bigram pages
		EventInt string `json:"event_int"`
	} `json:"blocks"`
}

// list is the ids that enter each page's hash. A pair enters as its two ids.
func (p pages) list() (out [][]uint32) {
	for i := 0; i+p.PageSize <= len(p.Tokens); i += p.PageSize {
		out = append(out, p.Tokens[i:i+p.PageSize])
	}
	for _, page := range p.Bigrams {
		var ids []uint32
		for _, pair := range page {
			ids = append(ids, pair[0], pair[1])
		}
		out = append(out, ids)
	}
	return out
}

func TestGoldenPages(t *testing.T) {
	rows, bigrams, salted := 0, 0, 0
	for line := range shared.Lines(t, "vectors/sglang_block_hashes.jsonl") {
		var p pages
		if err := json.Unmarshal(line, &p); err != nil {
			t.Fatal(err)
		}
		p.check(t)
		rows++
		bigrams += len(p.Bigrams)
		salted += len(p.Salt)
	}
	if rows < 9 || bigrams == 0 || salted == 0 {
		t.Errorf("%d golden rows, %d of bigrams, salts of %d bytes", rows, bigrams, salted)
	}
}

func (p pages) check(t *testing.T) {
	list := p.list()
	if len(list) != len(p.Blocks) {
		t.Fatalf("pages of %d: %d of them, want %d", p.PageSize, len(list), len(p.Blocks))
	}
	h := NewSGLang()
	parent, extra := h.NoneHash(), Extra{LoRAName: "makes no difference", CacheSalt: p.Salt}
	for i, want := range p.Blocks {
		parent = h.Next(parent, list[i], extra)
		extra.CacheSalt = ""
		if got := parent.String(); want.Digest != "" && got != want.Digest {
			t.Errorf("pages of %d, page %d: %s, want %s", p.PageSize, i, got, want.Digest)
		}
		if got := strconv.FormatInt(int64(parent.EventInt()), 10); got != want.EventInt {
			t.Errorf("pages of %d, page %d: event integer %s, want %s", p.PageSize, i, got, want.EventInt)
		}
	}
}
