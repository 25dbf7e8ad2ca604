package scenario

import (
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"fleetdrill/drills/predicate"
)

// object is a mapping whose keys have been checked against its shape. Reading a key that is not there gives
// its default.
type object struct {
	d      *decoder
	node   *yaml.Node
	shape  *shape
	values map[string]*yaml.Node
	keys   map[string]*yaml.Node
}

// object checks that n is a mapping with only the keys of its shape and with all that are required.
func (d *decoder) object(n *yaml.Node, s *shape) *object {
	o := &object{d: d, node: n, shape: s, values: map[string]*yaml.Node{}, keys: map[string]*yaml.Node{}}
	if n == nil {
		return o
	}
	if n.Kind != yaml.MappingNode {
		d.fail(n, "%s must be a mapping of %s, not %s", s.what, strings.Join(s.known(), ", "), describe(n))
		return o
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		o.add(n.Content[i], n.Content[i+1])
	}
	for _, k := range s.keys {
		if k.required {
			o.need(k.name)
		}
	}
	if !slices.ContainsFunc(s.unless, func(name string) bool { return o.keys[name] != nil }) {
		for _, name := range s.needs {
			o.need(name)
		}
	}
	return o
}

// add files one key of a mapping. A rejected key is remembered, so that it is not reported missing as well.
func (o *object) add(key, value *yaml.Node) {
	name, known := key.Value, o.shape.known()
	switch {
	case o.keys[name] != nil:
		o.d.fail(key, "duplicate key %q; the first one is on line %d", name, o.keys[name].Line)
		return
	case o.shape.refused[name] != "":
		o.d.fail(key, "%s", o.shape.refused[name])
	case slices.Contains(o.shape.later(), name):
		o.d.fail(key, "%q is not supported yet in %s; supported are %s", name, o.shape.what, strings.Join(known, ", "))
	case !slices.Contains(known, name):
		o.d.fail(key, "unknown key %q in %s%s", name, o.shape.what, predicate.Suggest(name, append(known, o.shape.later()...)))
	default:
		o.values[name] = value
	}
	o.keys[name] = key
}

// need reports a key that must be there and is not.
func (o *object) need(name string) {
	if o.node != nil && o.node.Kind == yaml.MappingNode && o.keys[name] == nil {
		o.d.fail(o.node, "%s needs %q", o.shape.what, name)
	}
}

// refuse reports keys that another form of the mapping has.
func (o *object) refuse(why string, keys ...string) {
	for _, k := range keys {
		if o.keys[k] != nil {
			o.d.fail(o.keys[k], "%s %s", k, why)
		}
	}
}

// get is the value of a key, nil when it is not there.
func (o *object) get(name string) *yaml.Node { return o.values[name] }

// The getters read a key as the table says: its limits, and its default when it is missing or wrong.

func (o *object) text(name string) string {
	if n := o.get(name); n != nil {
		return o.d.text(n)
	}
	return o.shape.key(name).def
}

func (o *object) texts(name string) []string { return o.d.texts(o.get(name), name) }

func (o *object) id(name string) string { return o.d.id(o.get(name)) }

func (o *object) whole(name string) int {
	k := o.shape.key(name)
	return o.d.integer(o.get(name), k.value.min, k.value.max, wholeOf(k.def))
}

func (o *object) boolean(name string) bool { return o.d.boolean(o.get(name)) }

func (o *object) duration(name string) time.Duration {
	k := o.shape.key(name)
	return o.d.duration(o.get(name), k.value.least, k.value.most, durationOf(k.def))
}

func (o *object) number(name string) float64 {
	k := o.shape.key(name)
	return o.d.number(o.get(name), k.value.low, k.value.high, numberOf(k.def))
}

// part reads a share above 0.
func (o *object) part(name string) float64 {
	n := o.get(name)
	if n == nil {
		return numberOf(o.shape.key(name).def)
	}
	before := len(o.d.problems) // before the share is read: a wrong one has its own message
	v := o.d.share(n)
	if v == 0 && len(o.d.problems) == before {
		o.d.fail(n, "the share %s hits nothing: it must be above 0", describe(n))
	}
	return v
}

// wordList reads one of the key's words or a list of them; nil without any.
func (o *object) wordList(name string) []string {
	k, n := o.shape.key(name), o.get(name)
	var out []string
	for _, w := range wordsOf(n, true) {
		out = append(out, o.d.word(w, name, k))
	}
	if n != nil && len(out) == 0 {
		o.d.fail(n, "%s is empty", name)
	}
	return out
}

func (o *object) mark(name string) predicate.Mark { return o.d.mark(o.get(name)) }

func (o *object) predicate(name string) *predicate.Expr { return o.d.predicate(o.get(name)) }

// word reads one of the key's words, or a list of them where it may be one.
func (o *object) word(name string) string {
	k, n := o.shape.key(name), o.get(name)
	out := k.def
	for _, w := range wordsOf(n, k.value.form == formWords) {
		out = o.d.word(w, name, k)
	}
	return out
}

func wordsOf(n *yaml.Node, list bool) []*yaml.Node {
	switch {
	case n == nil:
		return nil
	case list && n.Kind == yaml.SequenceNode:
		return n.Content
	}
	return []*yaml.Node{n}
}

// object reads a mapping.
func (o *object) object(name string) *object {
	return o.d.object(o.get(name), o.shape.key(name).value.of)
}

// list calls each with every element of a list.
func (o *object) list(name string, each func(*yaml.Node)) { o.d.list(o.get(name), name, each) }
