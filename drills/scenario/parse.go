package scenario

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"fleetdrill/drills/predicate"
)

// maxFile bounds a scenario file, maxDepth its nesting. Real ones are below 10 KB and five levels.
const (
	maxFile  = 256 << 10
	maxDepth = 32
)

// ReadFile reads and checks the scenario file at path. A file with mistakes gives Problems.
func ReadFile(path string) (*Scenario, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading a scenario: %w", err)
	}
	defer f.Close()
	src, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("reading scenario %s: %w", path, err)
	}
	return Parse(path, src)
}

// Parse decodes and checks a scenario; path is used in messages. A text with mistakes gives Problems, all
// of them.
func Parse(path string, src []byte) (*Scenario, error) {
	d := &decoder{file: path, stopOf: map[string]predicate.Mark{}}
	root := d.document(src)
	if root == nil {
		return nil, d.problems.sorted()
	}
	s := d.scenario(root)
	s.Path = path
	if len(d.problems) > 0 {
		return nil, d.problems.sorted()
	}
	return s, nil
}

// document parses the one YAML document of a file and refuses what makes YAML surprising: a second
// document, anchors and aliases, merge keys, deep nesting.
func (d *decoder) document(src []byte) *yaml.Node {
	if len(src) > maxFile {
		d.failAt(1, 1, "the file is larger than %d bytes", maxFile)
		return nil
	}
	dec := yaml.NewDecoder(bytes.NewReader(src))
	var doc, second yaml.Node
	err := dec.Decode(&doc)
	if errors.Is(err, io.EOF) {
		d.failAt(1, 1, "the file is empty")
		return nil
	}
	if err != nil {
		d.syntax(err)
		return nil
	}
	if err := dec.Decode(&second); err == nil {
		d.failAt(second.Line, second.Column, "a second document: one file holds one drill")
	} else if !errors.Is(err, io.EOF) {
		d.syntax(err)
	}
	if len(doc.Content) != 1 || !d.plain(doc.Content[0], 0) {
		return nil
	}
	return doc.Content[0]
}

var syntaxLine = regexp.MustCompile(`^(?:yaml: )?line (\d+): `)

// syntax reports a YAML error at the line it names; the library gives no column.
func (d *decoder) syntax(err error) {
	msg, line := strings.TrimPrefix(err.Error(), "yaml: "), 1
	if m := syntaxLine.FindStringSubmatch(msg); m != nil {
		line, _ = strconv.Atoi(m[1])
		msg = msg[len(m[0]):]
	}
	d.failAt(line, 1, "not valid YAML: %s", msg)
}

// plain reports whether a tree is free of anchors, aliases, merge keys, odd keys and deep nesting. It is
// false only for what must not be walked further.
func (d *decoder) plain(n *yaml.Node, depth int) bool {
	if depth > maxDepth {
		d.fail(n, "nested deeper than %d", maxDepth)
		return false
	}
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		d.fail(n, "anchors and aliases are not supported in a scenario")
		return false
	}
	for i, c := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 && (c.Kind != yaml.ScalarNode || c.Tag == "!!merge") {
			d.fail(c, "a key must be a plain word")
			return false
		}
		if !d.plain(c, depth+1) {
			return false
		}
	}
	return true
}

// scenario decodes the parts in any order and then checks what they say about each other.
func (d *decoder) scenario(root *yaml.Node) *Scenario {
	o := d.object(root, scenarioShape)
	if root.Kind != yaml.MappingNode {
		return &Scenario{}
	}
	if n := o.get("version"); n != nil && n.Value != version {
		d.fail(n, "unknown version %s: this is version %s", describe(n), version)
	}
	s := &Scenario{
		Name: o.id("name"), Summary: o.text("summary"), Tags: o.texts("tags"), Source: source(o.object("source")),
		Topology: o.word("topology"), Place: o.word("place"),
		Fleet: fleet(o.object("fleet")), Gateway: gateway(o.object("gateway")),
		Observe: observe(o.object("observe")), Steady: d.steady(o.object("steady")),
		Control: o.texts("control"), Repeat: repeat(o.object("repeat")), Budget: budget(o.object("budget")),
	}
	o.notEmpty("load", "a fleet without requests shows nothing")
	o.list("load", func(n *yaml.Node) { s.Loads = append(s.Loads, d.load(n)...) })
	o.list("timeline", func(n *yaml.Node) { s.Timeline = append(s.Timeline, d.step(n)) })
	o.notEmpty("expect", "a drill that expects nothing cannot fail")
	o.list("expect", func(n *yaml.Node) { s.Expect = append(s.Expect, d.expectation(n)) })
	newChecker(d, o, s).run()
	return s
}

// version of the language.
const version = "1"

// notEmpty reports an empty list; why says what one would mean.
func (o *object) notEmpty(name, why string) {
	if n := o.get(name); n != nil && n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
		o.d.fail(n, "%s is empty: %s", name, why)
	}
}

func source(o *object) Source { return Source{Issue: o.text("issue"), URL: o.text("url")} }

func fleet(o *object) Fleet {
	return Fleet{Workers: o.whole("workers"), Profile: o.text("profile"), KVBlocks: o.whole("kv_blocks"), BlockSize: o.whole("block_size"),
		Wires: o.wordList("wire")}
}

func gateway(o *object) Gateway { return Gateway{Target: o.word("target"), Args: o.texts("args")} }

// observe defaults max_gap to three periods: two late samples are noise, three are a hole.
func observe(o *object) Observe {
	out := Observe{Period: o.duration("period"), MaxGap: o.duration("max_gap")}
	if out.MaxGap == 0 {
		out.MaxGap = 3 * out.Period
	}
	if out.MaxGap < out.Period {
		o.d.fail(o.get("max_gap"), "max_gap %s is shorter than the period %s: every window would have a hole", out.MaxGap, out.Period)
	}
	return out
}

func (d *decoder) steady(o *object) Steady {
	s := Steady{Hold: o.duration("hold"), Timeout: o.duration("timeout")}
	o.list("require", func(n *yaml.Node) {
		if x := d.predicate(n); x != nil {
			s.Require = append(s.Require, x)
		}
	})
	return s
}

func repeat(o *object) Repeat { return Repeat{Runs: o.whole("runs"), Seed: uint64(o.whole("seed"))} }

func budget(o *object) Budget { return Budget{Fault: o.duration("fault"), Run: o.duration("run")} }
