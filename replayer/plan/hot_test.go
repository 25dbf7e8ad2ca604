package plan

import (
	"slices"
	"strings"
	"testing"

	"fleetdrill/replayer/trace"
)

func TestParseHotPrefix(t *testing.T) {
	for text, want := range map[string]HotPrefix{
		"":                              {},
		"share=0.5":                     {0.5, 1, 3072},
		"share=0.3,heads=4,tokens=1024": {0.3, 4, 1024},
		"tokens=512,share=1":            {1, 1, 512},
	} {
		if got, err := ParseHotPrefix(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v, want %+v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"heads=2":             "share 0",
		"share=x":             `"share=x"`,
		"share=0.5,tokens=10": "tokens 10: want whole blocks of 512",
		"share=0.5,heads=0":   "heads 0",
		"size=3":              "want share, heads or tokens",
	} {
		if _, err := ParseHotPrefix(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error with %q", text, err, want)
		}
	}
}

// A hot head changes neither lengths nor who shares what behind it: conversations have it or not as a whole.
func TestHotPrefixKeepsConversations(t *testing.T) {
	var b []byte
	for talk := range 400 {
		// Two turns of one conversation; block 0 is everybody's, the others its own.
		ids := []uint64{0}
		for k := range uint64(7) {
			ids = append(ids, uint64(1000*(talk+1))+k)
		}
		for turn, blocks := range []int{4, 8} {
			row := trace.Row{StampNs: int64(2*talk+turn) * 1e6, Input: blocks * trace.BlockTokens, Output: 1, IDs: ids[:blocks]}
			b = row.AppendJSON(b)
		}
	}
	text := string(b)
	plain := read(t, text, Options{Arrivals: Raw})
	hot := read(t, text, Options{Arrivals: Raw, Hot: HotPrefix{Share: 0.5, Heads: 2, Tokens: 1024}})
	heads := map[uint64]int{}
	for i := 0; i < len(hot.Requests); i += 2 {
		first, second := hot.Requests[i], hot.Requests[i+1]
		if first.PromptTokens != plain.Requests[i].PromptTokens || !slices.Equal(first.Row.IDs[2:], plain.Requests[i].Row.IDs[2:]) {
			t.Fatal("something behind the head changed")
		}
		if !slices.Equal(first.Row.IDs, second.Row.IDs[:len(first.Row.IDs)]) {
			t.Fatal("one conversation's turns have different heads")
		}
		heads[first.Row.IDs[0]]++
	}
	if len(heads) != 3 || heads[0] < 150 || heads[0] > 250 {
		t.Errorf("heads %v: want about half without, the rest on two", heads)
	}
}
