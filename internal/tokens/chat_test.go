package tokens

import (
	"encoding/json"
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
