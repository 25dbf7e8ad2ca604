package scenario

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"gopkg.in/yaml.v3"
	"pgregory.net/rapid"

	"fleetdrill/drills/predicate"
	"fleetdrill/scenarios"
)

// compiled is the schema as a validator reads it.
func compiled(t *testing.T) *jsonschema.Schema {
	t.Helper()
	text, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("scenario.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("scenario.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// validate runs a scenario's text past the schema, as an editor does.
func validate(t *testing.T, s *jsonschema.Schema, src []byte) error {
	t.Helper()
	var v any
	if err := yaml.Unmarshal(src, &v); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(doc)
}

// TestSchemaTakesEveryScenario: what ships validates, and so does the starter.
func TestSchemaTakesEveryScenario(t *testing.T) {
	schema := compiled(t)
	n := 0
	err := fs.WalkDir(scenarios.FS(), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		src, err := fs.ReadFile(scenarios.FS(), path)
		if err != nil {
			return err
		}
		n++
		if err := validate(t, schema, src); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		return nil
	})
	if err != nil || n == 0 {
		t.Fatalf("%d scenarios: %v", n, err)
	}
	src, err := Starter("first")
	if err != nil {
		t.Fatal(err)
	}
	if err := validate(t, schema, src); err != nil {
		t.Errorf("the starter: %v", err)
	}
}

// TestSchemaTakesWhatTheParserTakes: an editor must not mark what runs. The stories of testdata hold every
// form of the language.
func TestSchemaTakesWhatTheParserTakes(t *testing.T) {
	schema := compiled(t)
	files, err := filepath.Glob("testdata/stories/*")
	if err != nil {
		t.Fatal(err)
	}
	taken := 0
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, src := range inputs(string(text)) {
			if _, err := Parse("s.yaml", src); err != nil {
				continue
			}
			taken++
			if err := validate(t, schema, src); err != nil {
				t.Errorf("%s: the parser takes this and the schema does not: %v\n%s", name, err, src)
			}
		}
	}
	if taken < 6 {
		t.Errorf("only %d stories were taken by the parser", taken)
	}
}

// inputs are the scenarios of a file of stories.
func inputs(text string) [][]byte {
	var out [][]byte
	for _, story := range regexp.MustCompile(`(?ms)^(parse|with-base|with-rest)\n(.*?)^----$`).FindAllStringSubmatch(text, -1) {
		src := story[2]
		switch story[1] {
		case "with-base":
			src = base + src
		case "with-rest":
			src = base + rest + src
		}
		out = append(out, []byte(src))
	}
	return out
}

// TestSchemaRefuses: mistakes that an editor can show while one types.
func TestSchemaRefuses(t *testing.T) {
	schema := compiled(t)
	valid := base + rest
	if err := validate(t, schema, []byte(valid)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ old, new string }{
		{"fleet:", "flet:"},
		{"version: 1", "version: 2"},
		{"name: story", "name: 3story"},
		{"workers: 3", "workers: many"},
		{"rate: 24/s", "rate: 24"},
		{"input: 256..1024", "input: 256-1024"},
		{"rate: 24/s, ", ""},
		{"fault: kill", "fault: kil"},
		{"fault: kill", "fault: term"},
		{"target: w3, ", ""},
		{"target: w3", "target: {pick: two}"},
		{"target: w3", "target: {pick: one, worker: w3}"},
		{"at: steady.end", "at: steady.end, for: 3s"},
		{"within: 2s", "within: 2"},
		{"within: 2s, ", ""},
		{"after: death.effective, within: 2s", "over: death.effective..settle.end, after: death.effective"},
		{"after: death.effective, within: 2s, ", ""},
		{"that: not routable(death.target)", "allways: routable(w3)"},
	} {
		src := strings.Replace(valid, c.old, c.new, 1)
		if src == valid {
			t.Fatalf("%q is not in the text", c.old)
		}
		if err := validate(t, schema, []byte(src)); err == nil {
			t.Errorf("%q in place of %q is taken", c.new, c.old)
		}
		if _, err := Parse("s.yaml", []byte(src)); err == nil {
			t.Errorf("%q in place of %q is taken by the parser", c.new, c.old)
		}
	}
}

// TestDefaultsOfTheTables: a default is written as a person would write it, and means itself.
func TestDefaultsOfTheTables(t *testing.T) {
	all := append(shapes(), faultShapes()...)
	for _, s := range all {
		names := map[string]bool{}
		for _, k := range s.keys {
			if names[k.name] {
				t.Errorf("%s has %s twice", s.name, k.name)
			}
			names[k.name] = true
			if !k.soon && k.doc == "" {
				t.Errorf("%s.%s has no doc", s.name, k.name)
			}
			if k.def != "" {
				checkDefault(t, s, k)
			}
		}
	}
}

func checkDefault(t *testing.T, s *shape, k key) {
	d := &decoder{file: "default"}
	o := &object{d: d, shape: s, values: map[string]*yaml.Node{k.name: {Kind: yaml.ScalarNode, Value: k.def}}}
	switch k.value.form {
	case formWhole:
		o.whole(k.name)
	case formDuration:
		o.duration(k.name)
	case formBool:
		o.boolean(k.name)
	case formWord, formWords:
		o.word(k.name)
	case formShare:
		d.share(o.get(k.name))
	case formSeed:
		d.seed(o.get(k.name))
	case formNumber:
		o.number(k.name)
	case formPart:
		o.part(k.name)
	case formWordList:
		o.wordList(k.name)
	case formText, formWorker:
	default:
		t.Errorf("%s.%s cannot have a default", s.name, k.name)
	}
	for _, p := range d.problems {
		t.Errorf("%s.%s: the default %q: %s", s.name, k.name, k.def, p.Msg)
	}
}

// TestIDsAreMarks: an id names marks, so the predicate language must read it back whole.
func TestIDsAreMarks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.StringMatching(`[A-Za-z_][-A-Za-z0-9_.]{0,8}`).Draw(t, "id")
		m, err := predicate.ParseMark(id + ".x + 1s")
		back := err == nil && m.Name == id+".x" && !strings.Contains(id, ".")
		if back != validID(id) {
			t.Fatalf("%q: valid %v, read back %v as %q (%v)", id, validID(id), back, m.Name, err)
		}
	})
}
