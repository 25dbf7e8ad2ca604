package api

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A body of a million empty prompts is refused for about the price of those it may have, and the last of two
// keys counts, as in the engine's JSON.
func TestPromptLists(t *testing.T) {
	body := []byte(`[` + strings.Repeat(`"",`, 1<<20) + `""]`)
	var err error
	allocs := testing.AllocsPerRun(1, func() { err = new(prompt).UnmarshalJSON(body) })
	if err == nil || !strings.Contains(err.Error(), "more than 128 prompts") {
		t.Errorf("a million prompts: %v", err)
	}
	if allocs > 100*maxChoices {
		t.Errorf("a million prompts: %v allocations before they are refused", allocs)
	}
	var b struct{ Prompt prompt }
	if err := json.Unmarshal([]byte(`{"prompt": ["x", "y"], "prompt": [[1], "a"]}`), &b); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([][]uint32{{1}, {'a'}}, b.Prompt.prompts); diff != "" {
		t.Errorf("prompts (-want +got):\n%s", diff)
	}
}
