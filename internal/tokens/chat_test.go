package tokens

import (
	"encoding/json"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestChatReadsEveryContentShape(t *testing.T) {
	for body, want := range map[string]ChatMessage{
		`{"role":"user","content":"hi"}`:                      {Role: "user", Content: "hi"},
		`{"role":"assistant","content":null,"tool_calls":[]}`: {Role: "assistant"},
		`{"role":"assistant"}`:                                {Role: "assistant"},
		`{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"name":"x"}`: {Role: "user", Content: "a\nb"},
	} {
		var got ChatMessage
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", body, diff)
		}
	}
}

func TestChatRefusesWhatHasNoTokens(t *testing.T) {
	for body, want := range map[string]string{
		`{"role":"user","content":[{"type":"image_url"}]}`: `part 0 has type "image_url"`,
		`{"role":"user","content":7}`:                      "want a string or a list of parts",
		`"hello"`:                                          "reading a chat message",
	} {
		var m ChatMessage
		if err := json.Unmarshal([]byte(body), &m); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", body, err, want)
		}
	}
}

func TestChatGrowsByAppending(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var talk []ChatMessage
		for range rapid.IntRange(1, 4).Draw(t, "turns") {
			talk = append(talk, ChatMessage{Role: "user", Content: rapid.String().Draw(t, "question")})
			before := EncodeChat(talk)
			// What an engine produces are words, so they come back as the ids it cached.
			answer := rapid.SliceOfN(rapid.Uint32Range(FirstWord, Vocab-1), 1, 8).Draw(t, "answer")
			talk = append(talk, ChatMessage{Role: "assistant", Content: Decode(answer)})
			after := EncodeChat(talk)
			if want := append(slices.Clone(before), answer...); !slices.Equal(after[:len(want)], want) {
				t.Fatalf("turn %d is no prefix of the next one", len(talk)/2)
			}
		}
	})
}

// A conversation is read like a list of messages, twice the same key included.
func TestConversationReadsLists(t *testing.T) {
	for body, want := range map[string]Conversation{
		`{"m": null}`:            nil,
		`{"m": []}`:              {},
		`{"m": [{"role": "a"}]}`: {{Role: "a"}},
		`{"m": [{"role": "a"}, {"role": "b"}], "m": [{"content": "c"}]}`: {{Content: "c"}},
	} {
		var got struct{ M Conversation }
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		if diff := cmp.Diff(want, got.M); diff != "" {
			t.Errorf("%s (-want +got):\n%s", body, diff)
		}
	}
	for _, body := range []string{`{"m": 7}`, `{"m": {}}`, `{"m": [7]}`, `{"m": ["a"]}`} {
		var got struct{ M Conversation }
		if err := json.Unmarshal([]byte(body), &got); err == nil {
			t.Errorf("%s was read as %v", body, got.M)
		}
	}
}

// Bodies of nothing but small things cost a few times what the things are worth before they are refused, not
// what their number makes of them: counted in bytes allocated, the same on every machine.
func TestFloodsOfSmallPartsAreCheap(t *testing.T) {
	const size = 2 << 20
	list := func(item string) []byte {
		return []byte("[" + strings.Repeat(item+",", size/len(item)) + item + "]")
	}
	for name, c := range map[string]struct {
		body []byte
		into any
		most uint64 // bytes allocated per byte of the body
	}{
		"empty messages": {list(`{}`), new(Conversation), 16},
		"parts":          {[]byte(`{"content":` + string(list(`{"type":"text"}`)) + `}`), new(ChatMessage), 24},
		"parts unknown":  {[]byte(`{"content":` + string(list(`{}`)) + `}`), new(ChatMessage), 4},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_ = json.Unmarshal(c.body, c.into)
		runtime.ReadMemStats(&after)
		got := (after.TotalAlloc - before.TotalAlloc) / size
		if got > c.most {
			t.Errorf("%s: %d bytes allocated per byte of the body, at most %d", name, got, c.most)
		}
	}
}
