package scenario

import (
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"fleetdrill/internal/contract"
)

// Kinds lists the fault kinds that can be injected.
func Kinds() []string { return kindNames(func(k kind) bool { return k.supported }) }

// kindNames lists kinds of the language.
func kindNames(which func(kind) bool) []string {
	var out []string
	for _, k := range kinds {
		if which(k) {
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
		d.fail(n, "fault %s is not supported yet; supported are %s", name, strings.Join(Kinds(), ", "))
		return kind{}, false
	}
	d.fail(n, "unknown fault %q%s", name, suggestAmong(name, kindNames(func(kind) bool { return true })))
	return kind{}, false
}

// load decodes one load and its phases.
func (d *decoder) load(n *yaml.Node) []Load {
	o := d.object(n, loadShape)
	l := Load{ID: o.id("id"), Synth: synth(o.object("synth")), To: o.text("to"), Start: o.mark("start"), Stop: o.mark("stop"),
		Seed: d.seed(o.get("seed")), Overload: o.boolean("overload")}
	loads := []Load{l}
	d.loadNodes, d.stopOf[l.ID] = append(d.loadNodes, n), l.Stop
	o.list("phases", func(n *yaml.Node) {
		loads = append(loads, d.phase(n, l))
		d.loadNodes = append(d.loadNodes, n)
		// Each phase hands over to the next; the load's own stop ends the last one.
		k := len(loads) - 1
		loads[k-1].Stop, loads[k].Stop = loads[k].Start, l.Stop
	})
	return loads
}

// phase decodes one phase of a load as a load of its own.
func (d *decoder) phase(n *yaml.Node, of Load) Load {
	o := d.object(n, phaseShape)
	return Load{ID: o.id("id"), PhaseOf: of.ID, To: of.To, Start: o.mark("at"), Seed: of.Seed, Overload: of.Overload,
		Synth: synth(o.object("synth"))}
}

// synth decodes generated requests.
func synth(o *object) Synth {
	d := o.d
	s := Synth{
		Rate: d.rate(o.get("rate")), Input: d.intRange(o.get("input")), Output: d.intRange(o.get("output")),
		Heads: o.whole("heads"), HeadTokens: o.whole("head_tokens"),
		NewPrefix: d.share(o.get("new_prefix")), HitsOnly: o.boolean("hits_only"), Trickle: o.boolean("trickle"),
	}
	if (s.Heads == 0) != (s.HeadTokens == 0) && o.node != nil && !s.Trickle {
		d.fail(o.node, "heads and head_tokens belong together: give both or neither")
	}
	if s.NewPrefix > 0 && s.HitsOnly {
		d.fail(o.get("new_prefix"), "new_prefix cannot stand beside hits_only, which repeats a fixed set of prompts")
	}
	return s
}

// seed reads $run.seed or a number.
func (d *decoder) seed(n *yaml.Node) Seed {
	s, ok := d.scalar(n, runSeed+" or a number")
	if !ok || s == runSeed {
		return Seed{Run: true}
	}
	v, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		d.fail(n, "%q is not a seed: write %s or a whole number", s, runSeed)
	}
	return Seed{Value: v}
}

// runSeed stands for the seed of the run.
const runSeed = "$run.seed"

// step tells a fault from a wait by its first word, so that a mistake inside either keeps its own message.
func (d *decoder) step(n *yaml.Node) Step {
	if k := keyOf(n, "fault"); k != nil {
		return Step{Fault: d.fault(n, k)}
	}
	if keyOf(n, "wait") != nil {
		return Step{Wait: d.wait(n)}
	}
	d.fail(n, "a step of the timeline starts with fault: KIND or wait: ID")
	return Step{}
}

// keyOf is the value of a key of a mapping, nil without it.
func keyOf(n *yaml.Node, key string) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

func (d *decoder) wait(n *yaml.Node) *Wait {
	o := d.object(n, waitShape)
	return &Wait{ID: o.id("wait"), Until: o.mark("until"), Line: n.Line}
}

// fault looks the kind up before anything else, because the other keys depend on it. Of a fault whose kind
// is wrong only the id counts: it still names marks that rules may use.
func (d *decoder) fault(n, name *yaml.Node) *Fault {
	k, ok := d.kind(name)
	if !ok {
		f := &Fault{Line: n.Line}
		if id := keyOf(n, "id"); id != nil {
			f.ID = id.Value
		}
		return f
	}
	o := d.object(n, k.shape())
	f := &Fault{Kind: k.name, ID: o.id("id"), Target: d.target(o.get("target")), At: d.at(o.get("at")), Line: n.Line}
	f.Confirm.Within = o.object("confirm").duration("within")
	f.Params = params(o, k)
	f.Heal = d.healing(o, k)
	d.confirmable(o, f)
	return f
}

// params decodes the parameters of a fault. What they say about each other is checked when each is right.
func params(o *object, k kind) Params {
	before := len(o.d.problems)
	var out Params
	for _, p := range k.params {
		if v := o.param(p); v != nil {
			out = append(out, Param{p.name, v})
		}
	}
	if k.hook == nil || len(o.d.problems) > before || slices.ContainsFunc(k.params, func(p key) bool { return p.required && o.keys[p.name] == nil }) {
		return out
	}
	values := contract.HookValues{}
	for _, p := range k.hook.Params {
		if p.Name == "for" { // the lab's own
			continue
		}
		if i := slices.IndexFunc(out, func(x Param) bool { return x.Name == p.Name }); i >= 0 {
			values[p.Name] = out[i].Value
		}
	}
	if c := k.hook.Conflict(values); c.Problem != "" {
		at := o.node
		for _, name := range c.Params {
			if o.keys[name] != nil {
				at = o.keys[name]
			}
		}
		o.d.fail(at, "%s %s", strings.Join(c.Params, " and "), c.Problem)
	}
	return out
}

// param reads a parameter, nil when it is not there and has no default.
func (o *object) param(p key) any {
	if p.soon || p.def == "" && o.get(p.name) == nil {
		return nil
	}
	switch p.value.form {
	case formWhole:
		return int64(o.whole(p.name))
	case formNumber:
		return o.number(p.name)
	case formPart:
		return o.part(p.name)
	case formDuration:
		return o.duration(p.name)
	}
	return o.word(p.name)
}

// late are the kinds whose first effect is seen only after their parameter by.
var late = []string{contract.FaultDelayPublisher, contract.FaultLateRemovals, contract.FaultHealth}

// confirmable refuses a proof that would be waited for in vain.
func (d *decoder) confirmable(o *object, f *Fault) {
	if by := f.Params.Duration("by"); slices.Contains(late, f.Kind) && by > 0 && by >= f.Confirm.Within {
		d.fail(o.keys["by"], "by %v is not seen within %v: give it longer by confirm: {within: ...}", by, f.Confirm.Within)
	}
}

// healing reads for or heal; a kind that has neither says why.
func (d *decoder) healing(o *object, k kind) *Heal {
	if k.heals != healTimed {
		return nil
	}
	switch h, length := o.get("heal"), o.get("for"); {
	case h != nil && length != nil:
		d.fail(o.keys["for"], "for cannot stand beside heal: for is short for heal: {after: ...}")
	case length != nil:
		return &Heal{After: o.duration("for")}
	case h != nil:
		return heal(o.object("heal"))
	}
	return nil
}

// target reads {pick: one}, {worker: w3} or w3.
func (d *decoder) target(n *yaml.Node) Target {
	if n != nil && n.Kind == yaml.ScalarNode {
		return Target{Worker: d.text(n)}
	}
	o := d.object(n, targetShape)
	t := Target{Worker: o.text("worker"), Pick: o.word("pick")}
	if n != nil && (o.keys["pick"] == nil) == (o.keys["worker"] == nil) {
		d.fail(n, "a target is either pick: one or worker: w1")
	}
	return t
}

// at reads a mark, or {when, from, within}.
func (d *decoder) at(n *yaml.Node) At {
	if n != nil && n.Kind == yaml.ScalarNode {
		return At{From: d.mark(n)}
	}
	o := d.object(n, atShape)
	return At{When: o.predicate("when"), From: o.mark("from"), Within: o.duration("within")}
}

// heal reads {after} or {when, timeout}.
func heal(o *object) *Heal {
	switch {
	case o.keys["after"] != nil && o.keys["when"] != nil:
		o.d.fail(o.node, "a heal has either after or when, not both")
	case o.keys["when"] != nil:
		o.need("timeout")
	default:
		o.need("after")
		o.refuse("belongs to when, not to after", "timeout")
	}
	return &Heal{After: o.duration("after"), When: o.predicate("when"), Timeout: o.duration("timeout")}
}

// expectation tells the two families of operators apart by the mark or window they start from.
func (d *decoder) expectation(n *yaml.Node) Expectation {
	o := d.object(n, expectationShape)
	x := Expectation{ID: o.id("id"), Line: n.Line}
	switch {
	case o.keys["after"] != nil && o.keys["over"] != nil:
		d.fail(n, "an expectation has either after or over, not both")
	case o.keys["after"] != nil:
		after(o, &x)
	case o.keys["over"] != nil:
		over(o, &x)
	case n.Kind == yaml.MappingNode:
		d.fail(n, "an expectation needs after: MARK or over: MARK..MARK")
	}
	return x
}

// after decodes after/within/that/hold.
func after(o *object, x *Expectation) {
	o.need("within")
	o.need("that")
	x.Op, x.After, x.Within, x.That, x.Hold = OpAfter, o.mark("after"), o.duration("within"), o.predicate("that"), o.duration("hold")
	o.refuse("belongs to over, not to after", "always", "never", "at_least_once", "allow", "window")
}

// over decodes the operators of a window, exactly one of which must be there.
func over(o *object, x *Expectation) {
	x.Over, x.Window = o.d.marks(o.get("over")), o.duration("window")
	o.refuse("belongs to after, not to over", "within", "hold")
	for _, op := range []string{OpAlways, OpNever, OpThat, OpAtLeastOnce} {
		if o.keys[op] == nil {
			continue
		}
		if x.Op != "" {
			o.d.fail(o.keys[op], "%s cannot stand beside %s: an expectation has one rule", op, x.Op)
			continue
		}
		x.Op, x.That = op, o.predicate(op)
	}
	if x.Op == "" {
		o.d.fail(o.node, "over needs one of always, never, that, at_least_once")
	}
	if x.Op != OpAlways {
		o.refuse("belongs to always", "allow")
		return
	}
	x.Streak = o.object("allow").duration("streak")
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
