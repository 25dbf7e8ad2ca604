package engine

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestBuiltinProfiles(t *testing.T) {
	for _, name := range builtinNames() {
		p, err := LoadProfile(name)
		if err != nil {
			t.Error(err)
			continue
		}
		if p.Name != name {
			t.Errorf("profile %s calls itself %s", name, p.Name)
		}
		c := Config{
			BlockSize: p.BlockSize.Int(), NumBlocks: p.NumBlocks.Int(), MaxNumSeqs: p.MaxNumSeqs.Int(),
			MaxNumBatchedTokens: p.MaxNumBatchedTokens.Int(), MaxModelLen: 1000, Timing: p.Timing(),
		}
		if _, err := New(c); err != nil {
			t.Errorf("profile %s makes no engine: %v", name, err)
		}
	}
	fast, err := LoadProfile("fast")
	if err != nil {
		t.Fatal(err)
	}
	if want := (Timing{A: 600_000, B: 2200, C: 2800, D: 3, E: 0.21}); fast.Timing() != want {
		t.Errorf("fast is %+v, want %+v", fast.Timing(), want)
	}
}

func TestProfileFromFile(t *testing.T) {
	data, err := builtin.ReadFile("profiles/drill.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	last := "max_num_batched_tokens:   {value: 2048, basis: chosen}\n"
	for _, c := range []struct {
		name, from, to string
		want           string // part of the error, empty for none
	}{
		{"as it is", "", "", ""},
		{"a fitted figure", "5000000, basis: chosen", "5000000, basis: fitted", ""},
		{"unknown key", "step_ns:", "step_us:", "line 4: field step_us not found"},
		{"unknown key of a figure", "{value: 3, basis", "{valve: 3, basis", "line 7: field valve not found"},
		{"not a number", "value: 2200", "value: much", "line 5: cannot unmarshal"},
		{"missing figure", "decode_seq_ns:            {value: 2800, basis: chosen}", "", "decode_seq_ns is missing"},
		{"overhead", "num_blocks:", "request_overhead_ns: {value: 2000000, basis: chosen}\nnum_blocks:", ""},
		{"overhead without a basis", "num_blocks:", "request_overhead_ns: {value: 2000000}\nnum_blocks:", `request_overhead_ns: basis is ""`},
		{"jitter of all", "num_blocks:", "step_jitter: {value: 1, basis: chosen}\nnum_blocks:", "jitter is 1, must be"},
		{"a curve too", "num_blocks:", "curve: {capacity_tokens: {value: 9, basis: chosen}}\nnum_blocks:", "step_ns beside a curve"},
		{"unknown basis", "12000, basis: chosen", "12000, basis: guessed", `num_blocks: basis is "guessed"`},
		{"half a block", "value: 12000", "value: 0.5", "num_blocks is 0.5, must be a whole number"},
		{"negative time", "value: 2200", "value: -1", "coefficient B is -1"},
		{"two documents", last, last + "---\nname: other\n", "more than one document"},
		{"no name", "name: drill", "", "name is missing"},
	} {
		path := filepath.Join(t.TempDir(), "p.yaml")
		if err := os.WriteFile(path, []byte(strings.Replace(text, c.from, c.to, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := LoadProfile(path)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path)):
			t.Errorf("%s: error is %v, must name the file and say %q", c.name, err, c.want)
		}
	}
}

func TestUnknownProfile(t *testing.T) {
	_, err := LoadProfile("warp")
	const want = `unknown timing profile "warp": built in are drill, fast, qwen3-8b-published, qwen3-8b-published-curve, replay-default, rtx4090-llama-3.1-8b, rtxpro6000-llama-3.1-8b, rtxpro6000-qwen3-32b; anything else must be a path`
	if err == nil || err.Error() != want {
		t.Errorf("error is %v, want %s", err, want)
	}
	if _, err := LoadProfile("./nowhere.yaml"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file gives %v", err)
	}
}
