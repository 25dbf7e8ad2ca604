package scenario

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"fleetdrill/drills/predicate"
)

// healing says how a kind of fault ends.
type healing int

const (
	healNever  healing = iota // what was killed stays dead
	healTimed                 // by the timeline: for or heal
	healItself                // when what it was told to do is done
)

// kind is a row of the table of faults: what a scenario may ask for.
type kind struct {
	name string
	// supported kinds can be injected by this version.
	supported bool
	heals     healing
	params    []param
}

// param is a parameter of a fault kind: a whole number of at least min, or one of words, the first of
// which is the default. soon lists words that the language has and this version does not.
type param struct {
	name     string
	required bool
	min      int
	words    []string
	soon     []string
}

// kinds lists every fault of the language. An entry that is not supported gives an error that says so, and
// not the misleading "unknown".
var kinds = []kind{
	{name: FaultKill, supported: true, heals: healNever},
	{name: FaultStop, supported: true, heals: healTimed},
	{name: FaultPause, supported: true, heals: healTimed},
	{name: FaultWedge, supported: true, heals: healTimed},
	{name: FaultPartition, supported: true, heals: healTimed, params: []param{
		{name: "link", required: true, words: []string{"http", "events", "replay", "all"}, soon: []string{"gateway-relay", "engine-relay"}},
		{name: "direction", words: []string{"both"}, soon: []string{"to_engine", "from_engine"}},
		{name: "mode", words: []string{"drop"}, soon: []string{"refuse", "reset"}},
	}},
	{name: FaultDropBatches, supported: true, heals: healItself, params: []param{
		{name: "count", required: true, min: 1},
		{name: "replay", words: []string{"keep", "lose"}},
	}},
	{name: FaultRestartPublisher, supported: true, heals: healItself, params: []param{
		{name: "cache", words: []string{"keep", "empty"}},
		{name: "socket", words: []string{"keep", "rebind"}},
		{name: "ahead"},
	}},
	{name: "term"},
	{name: "restart"},
	{name: "starve"},
	{name: "listener"},
	{name: "half_open"},
	{name: "link_slow"},
	{name: "link_cut"},
	{name: "gateway"},
	{name: "relay"},
	{name: "discovery"},
	{name: "clients"},
}

// maxParam bounds a whole number of a fault: a run has a few thousand batches.
const maxParam = 1 << 20

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

// load decodes one load and its phases. A key that is not supported yet must not be followed by a
// complaint that its replacement is missing.
func (d *decoder) load(n *yaml.Node) []Load {
	o := d.object(n, "a load", []string{"id", "synth", "phases", "to", "start", "stop", "seed", "overload"}, "trace", "abort")
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
	loads := []Load{l}
	d.loadNodes, d.stopOf[l.ID] = append(d.loadNodes, n), l.Stop
	d.list(o.get("phases"), "phases", func(n *yaml.Node) {
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
	o := d.object(n, "a phase", []string{"id", "at", "synth"})
	return Load{ID: d.id(o.need("id")), PhaseOf: of.ID, To: of.To, Start: d.mark(o.need("at")), Seed: of.Seed, Overload: of.Overload,
		Synth: d.synth(o.need("synth"))}
}

// synth decodes generated requests.
func (d *decoder) synth(n *yaml.Node) Synth {
	o := d.object(n, "synth", []string{"rate", "input", "output", "heads", "head_tokens", "new_prefix", "hits_only", "trickle"},
		"concurrency", "sessions")
	s := Synth{
		Heads: d.integer(o.get("heads"), 0, 1<<16, 0), HeadTokens: d.integer(o.get("head_tokens"), 0, 1<<20, 0),
		NewPrefix: d.share(o.get("new_prefix")), HitsOnly: d.boolean(o.get("hits_only")), Trickle: d.boolean(o.get("trickle")),
	}
	// A trickle brings its own rate and lengths; what is written beside it wins.
	want := o.need
	if o.keys["trickle"] != nil {
		want = o.get
	}
	s.Input, s.Output = d.intRange(want("input")), d.intRange(want("output"))
	if o.keys["concurrency"] == nil {
		s.Rate = d.rate(want("rate"))
	}
	if (s.Heads == 0) != (s.HeadTokens == 0) && n != nil && !s.Trickle {
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
	known := []string{"fault", "id", "target", "at", "confirm", "heal", "for"}
	for _, p := range k.params {
		known = append(known, p.name)
	}
	o := d.object(n, "a "+k.name+" fault", known)
	f := &Fault{Kind: k.name, ID: d.id(o.need("id")), Target: d.target(o.need("target")), At: d.at(o.need("at")), Line: n.Line}
	c := d.object(o.get("confirm"), "confirm", []string{"within"})
	f.Confirm.Within = d.duration(c.get("within"), time.Millisecond, confirmWithin(k))
	for _, p := range k.params {
		d.param(o, p, &f.Params)
	}
	f.Heal = d.healing(o, k)
	return f
}

// confirmWithin is the default bound of a fault's proof. One whose proof is a batch waits for traffic.
func confirmWithin(k kind) time.Duration {
	if k.heals == healItself {
		return 5 * time.Second
	}
	return 500 * time.Millisecond
}

// param decodes one parameter of a fault into its place.
func (d *decoder) param(o *object, p param, out *Params) {
	n := o.get(p.name)
	if p.required {
		n = o.need(p.name)
	}
	whole := map[string]*int{"count": &out.Count, "ahead": &out.Ahead}
	words := map[string]*string{"replay": &out.Replay, "link": &out.Link, "direction": &out.Direction, "mode": &out.Mode,
		"cache": &out.Cache, "socket": &out.Socket}
	if at := whole[p.name]; at != nil {
		*at = d.integer(n, p.min, maxParam, 0)
		return
	}
	*words[p.name] = d.word(n, p.name, p.words, p.soon)
}

// word reads one of words, the first of which stands for a missing one.
func (d *decoder) word(n *yaml.Node, what string, words, soon []string) string {
	if n == nil {
		return words[0]
	}
	s := d.text(n)
	switch {
	case s == "" || contains(words, s):
		return s
	case contains(soon, s):
		d.fail(n, "%s %s is not supported yet; supported is %s", what, s, strings.Join(words, ", "))
	default:
		d.fail(n, "unknown %s %q%s", what, s, suggestAmong(s, append(words[:len(words):len(words)], soon...)))
	}
	return words[0]
}

// healing reads for or heal where the kind has them.
func (d *decoder) healing(o *object, k kind) *Heal {
	if k.heals != healTimed {
		why := "a " + k.name + " is not healed: what was killed stays dead"
		if k.heals == healItself {
			why = "a " + k.name + " ends by itself and gives the mark healed then"
		}
		for _, key := range []string{"heal", "for"} {
			if o.keys[key] != nil {
				d.fail(o.keys[key], "%s", why)
			}
		}
		return nil
	}
	h, length := o.get("heal"), o.get("for")
	switch {
	case h != nil && length != nil:
		d.fail(o.keys["for"], "for cannot stand beside heal: for is short for heal: {after: ...}")
	case length != nil:
		return &Heal{After: d.duration(length, time.Millisecond, time.Second)}
	case h != nil:
		return d.heal(h)
	}
	return nil
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
