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
	"time"

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

var topKeys = []string{"version", "name", "summary", "tags", "source", "topology", "place", "fleet", "gateway", "load",
	"observe", "steady", "timeline", "expect", "control", "repeat", "budget"}

// scenario decodes the parts in any order and then checks what they say about each other.
func (d *decoder) scenario(root *yaml.Node) *Scenario {
	o := d.object(root, "a scenario", topKeys, "relay", "symptom")
	if root.Kind != yaml.MappingNode {
		return &Scenario{}
	}
	if n := o.need("version"); n != nil && n.Value != "1" {
		d.fail(n, "unknown version %s: this is version 1", describe(n))
	}
	s := &Scenario{
		Name:    d.id(o.need("name")),
		Summary: d.text(o.get("summary")),
		Tags:    d.texts(o.get("tags"), "tags"),
		Source:  d.source(o.get("source")),
		Fleet:   d.fleet(o.get("fleet")),
		Gateway: d.gateway(o.get("gateway")),
		Observe: d.observe(o.get("observe")),
		Steady:  d.steady(o.get("steady")),
		Control: d.texts(o.get("control"), "control"),
		Repeat:  d.repeat(o.get("repeat")),
		Budget:  d.budget(o.get("budget")),
	}
	s.Topology = d.only(o.get("topology"), "topology", "direct", "relay")
	s.Place = d.only(o.get("place"), "place", "process", "netns", "docker", "attach", "sim")
	d.some(o.need("load"), "load", "a fleet without requests shows nothing", func(n *yaml.Node) { s.Loads = append(s.Loads, d.load(n)...) })
	d.list(o.get("timeline"), "timeline", func(n *yaml.Node) { s.Timeline = append(s.Timeline, d.step(n)) })
	d.some(o.need("expect"), "expect", "a drill that expects nothing cannot fail", func(n *yaml.Node) { s.Expect = append(s.Expect, d.expectation(n)) })
	newChecker(d, o, s).run()
	return s
}

// only reads a word, or a list of one word, of which this version supports one value.
func (d *decoder) only(n *yaml.Node, what, supported string, known ...string) string {
	if n == nil {
		return supported
	}
	words := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		words = n.Content
	}
	for _, w := range words {
		switch v := d.text(w); {
		case v == supported || v == "":
		case contains(known, v):
			d.fail(w, "%s %s is not supported yet; supported is %s", what, v, supported)
		default:
			d.fail(w, "unknown %s %q%s", what, v, suggestAmong(v, append(known, supported)))
		}
	}
	return supported
}

func (d *decoder) source(n *yaml.Node) Source {
	o := d.object(n, "source", []string{"issue", "url"})
	return Source{Issue: d.text(o.get("issue")), URL: d.text(o.get("url"))}
}

func (d *decoder) fleet(n *yaml.Node) Fleet {
	o := d.object(n, "fleet", []string{"workers", "profile", "kv_blocks", "block_size"}, "ranks", "wire")
	f := Fleet{
		Workers:   d.integer(o.get("workers"), 1, 256, 8),
		Profile:   d.text(o.get("profile")),
		KVBlocks:  d.integer(o.get("kv_blocks"), 16, 1<<24, 16384),
		BlockSize: d.integer(o.get("block_size"), 1, 1024, 16),
	}
	if f.Profile == "" {
		f.Profile = "drill"
	}
	return f
}

func (d *decoder) gateway(n *yaml.Node) Gateway {
	o := d.object(n, "gateway", []string{"target", "args"}, "count")
	g := Gateway{Target: "fleetdrill", Args: d.texts(o.get("args"), "args")}
	if t := o.get("target"); t != nil && d.text(t) != g.Target {
		d.fail(t, "target %s is not supported yet; supported is fleetdrill", describe(t))
	}
	return g
}

// observe defaults max_gap to three periods: two late samples are noise, three are a hole.
func (d *decoder) observe(n *yaml.Node) Observe {
	o := d.object(n, "observe", []string{"period", "max_gap"})
	out := Observe{Period: d.duration(o.get("period"), 10*time.Millisecond, 100*time.Millisecond)}
	out.MaxGap = d.duration(o.get("max_gap"), time.Millisecond, 3*out.Period)
	if out.MaxGap < out.Period {
		d.fail(o.get("max_gap"), "max_gap %s is shorter than the period %s: every window would have a hole", out.MaxGap, out.Period)
	}
	return out
}

// steady defaults to the values of the release matrix.
func (d *decoder) steady(n *yaml.Node) Steady {
	o := d.object(n, "steady", []string{"hold", "timeout", "require"})
	s := Steady{
		Hold:    d.duration(o.get("hold"), 0, 3*time.Second),
		Timeout: d.duration(o.get("timeout"), time.Second, 30*time.Second),
	}
	d.list(o.get("require"), "require", func(n *yaml.Node) {
		if x := d.predicate(n); x != nil {
			s.Require = append(s.Require, x)
		}
	})
	return s
}

func (d *decoder) repeat(n *yaml.Node) Repeat {
	o := d.object(n, "repeat", []string{"runs", "seed"})
	return Repeat{Runs: d.integer(o.get("runs"), 1, 10000, 1), Seed: uint64(d.integer(o.get("seed"), 0, 1<<62, 1))}
}

func (d *decoder) budget(n *yaml.Node) Budget {
	o := d.object(n, "budget", []string{"fault", "run"})
	return Budget{Fault: d.duration(o.get("fault"), 0, 0), Run: d.duration(o.get("run"), 0, 0)}
}
