package load

import (
	"bytes"
	"encoding/json"
	"testing"
)

func TestParseChunk(t *testing.T) {
	for _, c := range []struct {
		what, in string
		want     chunk
		bad      bool
	}{
		{what: "token", in: `{"id":"c","choices":[{"index":0,"text":" a","finish_reason":null}]}`, want: chunk{token: true}},
		{what: "token of a newer release with usage null", in: `{"choices":[{"text":"a"}],"usage":null}`, want: chunk{token: true}},
		{what: "role", in: `{"choices":[{"delta":{"role":"assistant","content":""}}]}`},
		{what: "chat token", in: `{"choices":[{"delta":{"content":"a"}}]}`, want: chunk{token: true}},
		{what: "reasoning", in: `{"choices":[{"delta":{"content":null,"reasoning_content":"hm"}}]}`, want: chunk{token: true}},
		{what: "tool call", in: `{"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}`, want: chunk{token: true}},
		{what: "token ids without text", in: `{"choices":[{"text":"","token_ids":[5]}]}`, want: chunk{token: true}},
		{what: "nothing yet", in: `{"choices":[{"text":"","token_ids":[ ],"finish_reason":"stop"}]}`},
		{what: "second choice", in: `{"choices":[{"text":""},{"text":"b"}]}`, want: chunk{token: true}},
		{what: "usage", in: `{"choices":[],"usage":{"prompt_tokens":9,"total_tokens":12,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":8}}}`,
			want: chunk{hasUsage: true, completionTokens: 3, cachedTokens: 8}},
		{what: "continuous usage", in: `{"usage":{"completion_tokens":1,"prompt_tokens_details":null},"choices":[{"text":"a"}]}`,
			want: chunk{token: true, hasUsage: true, completionTokens: 1}},
		{what: "usage of a strange engine", in: `{"usage":{"completion_tokens":-4,"prompt_tokens_details":{"cached_tokens":"many"}}}`, want: chunk{hasUsage: true}},
		{what: "error", in: `{"error":{"message":"no \"kv\"","code":500}}`, want: chunk{failure: `no "kv"`}},
		{what: "error as text", in: `{"error":"Unauthorized"}`, want: chunk{failure: "Unauthorized"}},
		{what: "error of another shape", in: `{"error":{"code":500}}`, want: chunk{failure: `{"code":500}`}},
		{what: "error null", in: `{"error":null,"choices":[{"text":"a"}]}`, want: chunk{token: true}},
		{what: "error empty", in: `{"error":""}`, want: chunk{failure: "error without a message"}},
		{what: "flat error", in: `{"object":"error","message":"gone"}`, want: chunk{failure: "gone"}},
		{what: "flat error, other order", in: `{"message":"gone","object":"error"}`, want: chunk{failure: "gone"}},
		{what: "escaped key", in: `{"cho\u0069ces":[{"text":"a"}]}`, want: chunk{token: true}},
		{what: "quotes and brackets in text", in: `{"choices":[{"text":"\"]}\\"}],"error":null}`, want: chunk{token: true}},
		{what: "empty", in: `{}`},
		{what: "nothing", in: ``, bad: true},
		{what: "number", in: `7`, bad: true},
		{what: "cut", in: `{"choices":[{"text":"a"`, want: chunk{token: true}, bad: true},
		{what: "cut in an escape", in: `{"choices":[{"text":"a\`, bad: true},
		{what: "two", in: `{}{}`, bad: true},
		{what: "no colon", in: `{"choices"[]}`, bad: true},
		{what: "no key", in: `{7:1}`, bad: true},
		{what: "no comma", in: `{"a":1 "b":2}`, bad: true},
		{what: "no value", in: `{"a":}`, bad: true},
	} {
		got, err := parseChunk([]byte(c.in))
		if got != c.want || (err != nil) != c.bad {
			t.Errorf("%s: %+v, %v", c.what, got, err)
		}
	}
}

// reference reads a chunk the slow way.
func reference(v map[string]any) (c chunk) {
	carries := func(v any) bool {
		switch v := v.(type) {
		case string:
			return v != ""
		case []any:
			return len(v) > 0
		}
		return false
	}
	var choice func(v any)
	choice = func(v any) {
		m, _ := v.(map[string]any)
		for _, k := range []string{"text", "content", "reasoning", "reasoning_content", "token_ids", "tool_calls"} {
			c.token = c.token || carries(m[k])
		}
		if m["delta"] != nil {
			choice(m["delta"])
		}
	}
	choices, _ := v["choices"].([]any)
	for _, one := range choices {
		choice(one)
	}
	count := func(v any) int {
		if n, ok := v.(json.Number); ok {
			if i, err := n.Int64(); err == nil && i >= 0 {
				return int(i)
			}
		}
		return 0
	}
	u, _ := v["usage"].(map[string]any)
	d, _ := u["prompt_tokens_details"].(map[string]any)
	c.hasUsage, c.completionTokens, c.cachedTokens = len(u) > 0, count(u["completion_tokens"]), count(d["cached_tokens"])
	if v["error"] != nil || v["object"] == "error" {
		c.failure = "some"
	}
	return c
}

// Any bytes end in an answer; any JSON object gives what encoding/json finds in it.
func FuzzParseChunk(f *testing.F) {
	for _, s := range []string{
		`{"choices":[{"index":0,"text":" a","delta":{"content":"x","tool_calls":[]}}],"usage":{"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":8}}}`,
		`{"error":{"message":"m"},"object":"error","message":7}`, `{"a":[[{"b":"\\\""}]],"choices":null}`, `{"usage":{"completion_tokens":1e2}}`, `{`, `[1,2`, `{"a":tru}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		_, err := parseChunk(in)
		var object map[string]json.RawMessage
		if json.Unmarshal(in, &object) != nil || object == nil {
			return
		}
		if err != nil {
			t.Fatalf("%q is an object: %v", in, err)
		}
		// Written again, no key stands twice: what then counts is not worth agreeing on.
		v, again := canonical(t, in)
		got, err := parseChunk(again)
		if got.failure != "" {
			got.failure = "some"
		}
		if want := reference(v); got != want || err != nil {
			t.Fatalf("%s: %+v, %v, want %+v", again, got, err, want)
		}
	})
}

func canonical(t *testing.T, in []byte) (v map[string]any, text []byte) {
	t.Helper()
	var loose any
	if err := json.Unmarshal(in, &loose); err != nil {
		t.Skip(err) // a number beyond float64
	}
	text, err := json.Marshal(loose)
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v, text
}

func BenchmarkParseChunk(b *testing.B) {
	in := []byte(`{"id":"cmpl-main-0000000000000007-000001","object":"text_completion","created":1789095808,"model":"mock-8b","choices":[{"index":0,"text":" bacad","logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,"token_ids":null}]}`)
	b.ReportAllocs()
	b.SetBytes(int64(len(in)))
	for b.Loop() {
		if c, err := parseChunk(in); err != nil || !c.token {
			b.Fatal(c, err)
		}
	}
}
