package scenario

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"fleetdrill/drills/predicate"
)

// kind is a row of the table of faults: what a scenario may ask for.
type kind struct {
	name string
	// supported kinds can be injected by this version; healable ones end before the run does.
	supported, healable bool
}

// kinds lists every fault of the language. An entry that is not supported gives an error that says so, and
// not the misleading "unknown".
var kinds = []kind{
	{"kill", true, false},
	{"term", false, false},
	{"restart", false, true},
	{"stop", false, true},
	{"starve", false, true},
	{"partition", false, true},
	{"listener", false, true},
	{"half_open", false, true},
	{"link_slow", false, true},
	{"link_cut", false, true},
	{"pause", false, true},
	{"gateway", false, true},
	{"relay", false, true},
	{"discovery", false, true},
	{"clients", false, true},
}

// supportedKinds lists the fault kinds that can be injected.
func supportedKinds() []string {
	var out []string
	for _, k := range kinds {
		if k.supported {
			out = append(out, k.name)
		}
	}
	return out
}

// kind looks a fault kind up and explains an unknown or unsupported one.
func (d *decoder) kind(n *yaml.Node) (kind, bool) {
	name := d.text(n)
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })
	if i >= 0 && kinds[i].supported {
		return kinds[i], true
	}
	if i >= 0 {
		d.fail(n, "fault %s is not supported yet; supported are %s", name, strings.Join(supportedKinds(), ", "))
		return kind{}, false
	}
	var all []string
	for _, k := range kinds {
		all = append(all, k.name)
	}
	d.fail(n, "unknown fault %q%s", name, suggestAmong(name, all))
	return kind{}, false
}

// suggestAmong suggests a close word, or lists them all when none is close.
func suggestAmong(word string, all []string) string {
	if s := predicate.Suggest(word, all); s != "" {
		return s
	}
	return ": it is one of " + strings.Join(all, ", ")
}

// load decodes one load. A key that is not supported yet must not be followed by a complaint that its
// replacement is missing.
func (d *decoder) load(n *yaml.Node) Load {
	o := d.object(n, "a load", []string{"id", "synth", "to", "start", "stop", "seed", "overload"}, "trace", "abort", "phases")
	l := Load{
		ID: d.id(o.need("id")), To: "gateway", Start: d.mark(o.get("start")), Stop: d.mark(o.get("stop")),
		Seed: d.seed(o.get("seed")), Overload: d.boolean(o.get("overload")),
	}
	if to := o.get("to"); to != nil {
		l.To = d.text(to)
	}
	if o.keys["trace"] == nil {
		l.Synth = d.synth(o.need("synth"))
	}
	return l
}

// synth decodes generated requests.
func (d *decoder) synth(n *yaml.Node) Synth {
	o := d.object(n, "synth", []string{"rate", "input", "output", "heads", "head_tokens", "new_prefix", "hits_only"},
		"concurrency", "sessions", "trickle")
	s := Synth{
		Input: d.intRange(o.need("input")), Output: d.intRange(o.need("output")),
		Heads: d.integer(o.get("heads"), 0, 1<<16, 0), HeadTokens: d.integer(o.get("head_tokens"), 0, 1<<20, 0),
		NewPrefix: d.share(o.get("new_prefix")), HitsOnly: d.boolean(o.get("hits_only")),
	}
	if o.keys["concurrency"] == nil {
		s.Rate = d.rate(o.need("rate"))
	}
	if (s.Heads == 0) != (s.HeadTokens == 0) && n != nil {
		d.fail(n, "heads and head_tokens belong together: give both or neither")
	}
	if s.NewPrefix > 0 && s.HitsOnly {
		d.fail(o.get("new_prefix"), "new_prefix cannot stand beside hits_only, which repeats a fixed set of prompts")
	}
	return s
}

// seed reads $run.seed or a number.
func (d *decoder) seed(n *yaml.Node) Seed {
	s, ok := d.scalar(n, "$run.seed or a number")
	if !ok || s == "$run.seed" {
		return Seed{Run: true}
	}
	v, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		d.fail(n, "%q is not a seed: write $run.seed or a whole number", s)
	}
	return Seed{Value: v}
}

// step tells a fault from a wait by its first word, so that a mistake inside either keeps its own message.
func (d *decoder) step(n *yaml.Node) Step {
	if n.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(n.Content); i += 2 {
			switch n.Content[i].Value {
			case "fault":
				return Step{Fault: d.fault(n)}
			case "wait":
				return Step{Wait: d.wait(n)}
			}
		}
	}
	d.fail(n, "a step of the timeline starts with fault: KIND or wait: ID")
	return Step{}
}

func (d *decoder) wait(n *yaml.Node) *Wait {
	o := d.object(n, "a wait", []string{"wait", "until"})
	return &Wait{ID: d.id(o.need("wait")), Until: d.mark(o.need("until")), Line: n.Line}
}

// fault looks the kind up before anything else, because the other keys depend on it.
func (d *decoder) fault(n *yaml.Node) *Fault {
	f := &Fault{Line: n.Line}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == "fault" {
			k, ok := d.kind(n.Content[i+1])
			if !ok {
				// The other keys depend on the kind; the id still names marks that rules may use.
				return &Fault{ID: idOf(n), Line: n.Line}
			}
			return d.faultOf(n, k)
		}
	}
	return f
}

// idOf is the id of a step whose other keys cannot be checked.
func idOf(n *yaml.Node) string {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == "id" {
			return n.Content[i+1].Value
		}
	}
	return ""
}

// faultOf decodes a fault of a known kind.
func (d *decoder) faultOf(n *yaml.Node, k kind) *Fault {
	o := d.object(n, "a "+k.name+" fault", []string{"fault", "id", "target", "at", "confirm", "heal"})
	f := &Fault{Kind: k.name, ID: d.id(o.need("id")), Target: d.target(o.need("target")), At: d.at(o.need("at")), Line: n.Line}
	c := d.object(o.get("confirm"), "confirm", []string{"within"})
	f.Confirm.Within = d.duration(c.get("within"), time.Millisecond, 500*time.Millisecond)
	if h := o.get("heal"); h != nil {
		f.Heal = d.heal(h)
		if !k.healable {
			d.fail(o.keys["heal"], "a %s is not healed: what was killed stays dead", k.name)
		}
	}
	return f
}

// target reads {pick: one}, {worker: w3} or w3.
func (d *decoder) target(n *yaml.Node) Target {
	if n != nil && n.Kind == yaml.ScalarNode {
		return Target{Worker: d.text(n)}
	}
	o := d.object(n, "target", []string{"pick", "worker"})
	t := Target{Worker: d.text(o.get("worker"))}
	if p := o.get("pick"); p != nil {
		t.Pick = d.text(p)
		if t.Pick != "one" {
			d.fail(p, "pick %s is not supported yet; supported is one", describe(p))
		}
	}
	if n != nil && (t.Pick == "") == (t.Worker == "") {
		d.fail(n, "a target is either pick: one or worker: w1")
	}
	return t
}

// at reads a mark, or {when, from, within}.
func (d *decoder) at(n *yaml.Node) At {
	if n != nil && n.Kind == yaml.ScalarNode {
		return At{From: d.mark(n)}
	}
	o := d.object(n, "at", []string{"when", "from", "within"})
	return At{
		When:   d.predicate(o.need("when")),
		From:   d.mark(o.need("from")),
		Within: d.duration(o.need("within"), time.Millisecond, 20*time.Second),
	}
}

// heal reads {after} or {when, timeout}.
func (d *decoder) heal(n *yaml.Node) *Heal {
	o := d.object(n, "heal", []string{"after", "when", "timeout"})
	h := &Heal{}
	switch {
	case o.keys["after"] != nil && o.keys["when"] != nil:
		d.fail(n, "a heal has either after or when, not both")
	case o.keys["when"] != nil:
		h.When = d.predicate(o.get("when"))
		h.Timeout = d.duration(o.need("timeout"), time.Millisecond, time.Minute)
	default:
		h.After = d.duration(o.need("after"), 0, 0)
	}
	return h
}

// expectation tells the two families of operators apart by the mark or window they start from.
func (d *decoder) expectation(n *yaml.Node) Expectation {
	o := d.object(n, "an expectation", []string{"id", "after", "within", "that", "hold", "over", "always", "never", "at_least_once", "allow", "window"})
	x := Expectation{ID: d.id(o.need("id")), Line: n.Line}
	switch {
	case o.keys["after"] != nil && o.keys["over"] != nil:
		d.fail(n, "an expectation has either after or over, not both")
	case o.keys["after"] != nil:
		d.after(o, &x)
	case o.keys["over"] != nil:
		d.over(o, &x)
	case n.Kind == yaml.MappingNode:
		d.fail(n, "an expectation needs after: MARK or over: MARK..MARK")
	}
	return x
}

// after decodes after/within/that/hold.
func (d *decoder) after(o *object, x *Expectation) {
	x.Op = OpAfter
	x.After = d.mark(o.get("after"))
	x.Within = d.duration(o.need("within"), time.Millisecond, 0)
	x.That = d.predicate(o.need("that"))
	x.Hold = d.duration(o.get("hold"), 0, 0)
	o.refuse("belongs to over, not to after", "always", "never", "at_least_once", "allow", "window")
}

// over decodes the operators of a window, exactly one of which must be there.
func (d *decoder) over(o *object, x *Expectation) {
	x.Over = d.marks(o.get("over"))
	x.Window = d.duration(o.get("window"), time.Millisecond, 0)
	o.refuse("belongs to after, not to over", "within", "hold")
	for _, op := range []string{OpAlways, OpNever, OpThat, OpAtLeastOnce} {
		if o.keys[op] == nil {
			continue
		}
		if x.Op != "" {
			d.fail(o.keys[op], "%s cannot stand beside %s: an expectation has one rule", op, x.Op)
			continue
		}
		x.Op, x.That = op, d.predicate(o.get(op))
	}
	if x.Op == "" {
		d.fail(o.node, "over needs one of always, never, that, at_least_once")
	}
	if x.Op != OpAlways {
		o.refuse("belongs to always", "allow")
		return
	}
	allow := d.object(o.get("allow"), "allow", []string{"streak"})
	x.Streak = d.duration(allow.get("streak"), 0, 0)
}

// refuse reports keys that another form of the mapping has.
func (o *object) refuse(why string, keys ...string) {
	for _, k := range keys {
		if o.keys[k] != nil {
			o.d.fail(o.keys[k], "%s %s", k, why)
		}
	}
}

// Rule is the expectation on one line, as a person would write it.
func (x Expectation) Rule() string {
	parts := []string{}
	add := func(key, value string) { parts = append(parts, key+": "+value) }
	if x.Op == OpAfter {
		add("after", x.After.String())
		add("within", x.Within.String())
		add("that", x.That.String())
		if x.Hold > 0 {
			add("hold", x.Hold.String())
		}
		return strings.Join(parts, ", ")
	}
	add("over", x.Over.String())
	if x.Window > 0 {
		add("window", x.Window.String())
	}
	add(x.Op, x.That.String())
	if x.Streak > 0 {
		add("allow", "{streak: "+x.Streak.String()+"}")
	}
	return strings.Join(parts, ", ")
}
