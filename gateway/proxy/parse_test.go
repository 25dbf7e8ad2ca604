package proxy

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"fleetdrill/internal/tokens"
)

func TestPromptShapes(t *testing.T) {
	text := tokens.Encode(" bab hello")
	for body, want := range map[string][]uint32{
		`{"prompt":" bab hello"}`:         text,
		`{"prompt":[" bab hello","x"]}`:   text,
		`{"prompt":[1, 2,3]}`:             {1, 2, 3},
		`{"prompt": [ [7,8] ,[9]]}`:       {7, 8},
		`{"prompt":[[]],"stream":true}`:   {},
		`{"prompt":"","cache_salt":"s"}`:  {},
		`{"prompt":[151935],"n":2,"x":1}`: {151935},
	} {
		got, err := parseCompletion([]byte(body))
		if err != nil || !slices.Equal(got.ids, want) {
			t.Errorf("%s: %v, %v, want %v", body, got.ids, err, want)
		}
	}
}

func TestChatIsTokenizedAsTheEnginesDo(t *testing.T) {
	got, err := parseChat([]byte(`{"messages":[{"role":"user","content":"hi"}],"stream":true,"cache_salt":"s"}`))
	want := tokens.EncodeChat([]tokens.ChatMessage{{Role: "user", Content: "hi"}})
	if err != nil || !slices.Equal(got.ids, want) || !got.stream || got.salt != "s" {
		t.Errorf("%+v, %v", got, err)
	}
}

// Errors speak of the body, in the client's words, and of nothing inside this program.
func TestBodiesThatAreNoRequests(t *testing.T) {
	for body, want := range map[string]string{
		`[1]`:                       "the body is not a request: it is a JSON array, not an object",
		`{"stream":3,"prompt":"x"}`: `the body is not a request: "stream" is a JSON number at byte 11`,
		`{"prompt":`:                "the body is not valid JSON at byte 10: unexpected end of JSON input",
		"{\"prompt\":\"\xff\"}":     "the body is not valid UTF-8",
	} {
		_, err := parseCompletion([]byte(body))
		if err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", body, err, want)
		}
	}
}

// FuzzBodies: whatever a client sends, the answer is a prompt or an apiError with a valid body, and a
// list of ids that the strict decoder accepts is read the same way.
func FuzzBodies(f *testing.F) {
	for _, seed := range []string{`{"prompt":"x"}`, `{"prompt":[1,2]}`, `{"prompt":[[1],[2]]}`, `{"prompt":[1.5]}`, `{"prompt":[1e3]}`, `{"prompt":[[[1]]]}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"x"}]}]}`, `{"prompt":[ ]}`, `{"prompt":[null]}`, `{"prompt":[true,{}]}`, "\xff", `[]`, ``} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, parse := range []func([]byte) (prompt, error){parseCompletion, parseChat} {
			_, err := parse(body)
			var api *apiError
			if err != nil && (!errors.As(err, &api) || !json.Valid(api.body())) {
				t.Fatalf("error %v is no API error", err)
			}
		}
		got, err := parseCompletion(body)
		var in struct {
			Prompt []uint32 `json:"prompt"`
		}
		if json.Unmarshal(body, &in) == nil && len(in.Prompt) > 0 && err == nil && !slices.Equal(got.ids, in.Prompt) {
			t.Fatalf("ids %v, want %v", got.ids, in.Prompt)
		}
	})
}

// The model's name only tells an adapter's namespace. What is no name is the engine's to refuse.
func TestModelName(t *testing.T) {
	for body, want := range map[string]string{
		`{"prompt":"x"}`:                   "",
		`{"model":"sql","prompt":"x"}`:     "sql",
		`{"model":"a\u00e9","prompt":"x"}`: "aé",
		`{"model":null,"prompt":"x"}`:      "",
		`{"model":["sql"],"prompt":"x"}`:   "",
		`{"model":7,"prompt":"x"}`:         "",
	} {
		if got, err := parseCompletion([]byte(body)); err != nil || got.model != want {
			t.Errorf("%s: %q, %v; want %q", body, got.model, err, want)
		}
	}
	if got, err := parseChat([]byte(`{"model":"sql","messages":[{"role":"user","content":"hi"}]}`)); err != nil || got.model != "sql" {
		t.Errorf("%+v, %v", got, err)
	}
}
