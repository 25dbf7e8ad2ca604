package scenario

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"fleetdrill/drills/predicate"
	"fleetdrill/internal/contract"
)

// settleMin is how long a run goes on after its last fault at least; settleExtra what it adds to the
// largest bound of the file, so that a late event is still seen and measured.
const (
	settleMin   = 7 * time.Second
	settleExtra = 2 * time.Second
)

// reserved ids name marks that the runner itself gives.
var reserved = []string{"steady", "run"}

// order is the place of a mark in a run: marks with a smaller one come earlier. Loads run beside the
// timeline, so their ends come last.
type order int

const (
	orderLoadStart order = -1
	orderSteady    order = 0
	orderTimeline  order = 10
	orderLoadEnd   order = 1 << 30
	// orderStep is the distance between steps of the timeline; a step's own marks lie between.
	orderStep order = 10
)

// place is where a mark comes in a run: after everything below lo, before everything above hi. Most marks
// have one place; heals and loads go on beside the timeline.
type place struct{ lo, hi order }

// checker holds what the parts of a scenario say about each other.
type checker struct {
	d    *decoder
	root *object
	s    *Scenario
	// marks holds every mark that the file can have.
	marks  map[string]place
	scope  predicate.Scope
	seenID map[string]bool
}

func newChecker(d *decoder, root *object, s *Scenario) *checker {
	c := &checker{d: d, root: root, s: s, marks: map[string]place{}, seenID: map[string]bool{}}
	c.scope = predicate.Scope{Workers: s.Fleet.Workers, Ranks: 1}
	return c
}

// run numbers all marks first, so that each part then sees exactly what precedes it, and a reference to a
// later mark is told from a reference to nothing.
func (c *checker) run() {
	c.ids()
	c.settle()
	c.number()
	c.steady()
	c.timeline()
	c.loads()
	c.expectations()
	c.steadyQuantiles()
	c.controls()
	c.targets()
}

// ids checks that the names of loads and steps differ, and registers faults before any predicate is
// checked: a trigger may name its own fault's target.
func (c *checker) ids() {
	for i, n := range c.d.loadNodes {
		c.unique(n, "id", c.s.Loads[i].ID)
	}
	for i, n := range c.nodes("timeline") {
		switch st := c.s.Timeline[i]; {
		case st.Fault != nil:
			c.unique(n, "id", st.Fault.ID)
			c.scope.Faults = append(c.scope.Faults, st.Fault.ID)
		case st.Wait != nil:
			c.unique(n, "wait", st.Wait.ID)
		}
	}
}

// number gives every mark its place.
func (c *checker) number() {
	c.mark("steady.start", orderSteady, orderSteady)
	c.mark("steady.end", orderSteady+1, orderSteady+1)
	for i, st := range c.s.Timeline {
		at := orderTimeline + order(i)*orderStep
		if w := st.Wait; w != nil {
			c.mark(w.ID+".start", at, at)
			c.mark(w.ID+".end", at+4, at+4)
			continue
		}
		c.numberFault(st.Fault, at)
	}
	c.numberLoads()
	for _, x := range c.s.Expect {
		switch x.Op {
		case OpAfter:
			c.mark(x.ID+".seen", c.marks[x.After.Name].lo, orderLoadEnd)
		case OpAtLeastOnce:
			c.mark(x.ID+".seen", c.marks[x.Over.From.Name].lo, orderLoadEnd)
		}
	}
}

// numberFault lets the end of a fault come at any time after its effect: the timeline goes on meanwhile.
func (c *checker) numberFault(f *Fault, at order) {
	if f == nil {
		return
	}
	c.mark(f.ID+".inject", at, at)
	c.mark(f.ID+".effective", at+1, at+1)
	if f.Heal != nil {
		c.mark(f.ID+".heal", at+2, orderLoadEnd-1)
	}
	if f.Heal != nil || f.SelfHeals() {
		c.mark(f.ID+".healed", at+3, orderLoadEnd-1)
	}
}

// numberLoads places the loads after the marks that start and stop them. Those marks may be of other
// loads, so it goes on until nothing new is found; loads that wait for each other stay at the end.
func (c *checker) numberLoads() {
	for range c.s.Loads {
		for _, l := range c.s.Loads {
			c.numberLoad(l.ID+".start", l.Start, orderLoadStart)
			c.numberLoad(l.ID+".end", l.Stop, orderLoadEnd)
		}
	}
	for _, l := range c.s.Loads {
		for _, name := range []string{l.ID + ".start", l.ID + ".end"} {
			if _, ok := c.marks[name]; !ok {
				c.mark(name, orderLoadEnd, orderLoadEnd)
			}
		}
	}
}

// numberLoad places one end of a load at a mark, or at a default without one.
func (c *checker) numberLoad(name string, at predicate.Mark, def order) {
	p, ok := c.marks[at.Name]
	switch {
	case at.IsZero():
		c.mark(name, def, def)
	case ok:
		c.mark(name, p.lo, orderLoadEnd)
	}
}

// nodes are the elements of a top-level list.
func (c *checker) nodes(key string) []*yaml.Node {
	n := c.root.get(key)
	if n == nil || n.Kind != yaml.SequenceNode || len(n.Content) > maxList {
		return nil
	}
	return n.Content
}

// mark registers a mark; a step without a readable id has none.
func (c *checker) mark(name string, lo, hi order) {
	if !strings.HasPrefix(name, ".") {
		c.marks[name] = place{lo, hi}
	}
}

// unique checks an id against the ones before it; all ids share one name space, since they all name marks.
func (c *checker) unique(n *yaml.Node, key, id string) {
	if id == "" {
		return
	}
	at := child(n, key)
	switch {
	case slices.Contains(reserved, id):
		c.d.fail(at, "the id %q is taken by the run itself", id)
	case c.seenID[id]:
		c.d.fail(at, "the id %q is used twice", id)
	}
	c.seenID[id] = true
}

// child is the value of a key, or the mapping itself when it has none.
func child(n *yaml.Node, key string) *yaml.Node {
	if n.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == key {
				return n.Content[i+1]
			}
		}
	}
	return n
}

// steady checks what is required before any fault. The requirements that parsed are matched with their nodes
// only when all did; otherwise the parse errors are report enough.
func (c *checker) steady() {
	n := c.root.get("steady")
	if n == nil {
		return
	}
	c.scope.Marks = c.before(orderSteady + 1)
	require := child(n, "require")
	for i, x := range c.s.Steady.Require {
		if require.Kind == yaml.SequenceNode && i < len(require.Content) && len(require.Content) == len(c.s.Steady.Require) {
			c.predicate(require.Content[i], x)
		}
	}
}

// steadyQuantiles adds to the steady state what the quantiles of it that rules name need, so that it goes
// on until there are enough requests.
func (c *checker) steadyQuantiles() {
	have := map[string]bool{}
	for _, x := range c.s.Steady.Require {
		have[x.String()] = true
	}
	for _, x := range c.s.Expect {
		if x.That == nil {
			continue
		}
		for _, need := range x.That.SteadyNeeds() {
			if e, err := predicate.Parse(need); err == nil && !have[need] {
				have[need] = true
				c.s.Steady.Require = append(c.s.Steady.Require, e)
			}
		}
	}
}

// before lists the marks that come earlier than a place in the run.
func (c *checker) before(at order) []string {
	var out []string
	for name, p := range c.marks {
		if p.lo < at {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// timeline walks the steps in order, so that each sees the marks of those before it.
func (c *checker) timeline() {
	for i, n := range c.nodes("timeline") {
		at := orderTimeline + order(i)*orderStep
		c.scope.Marks = c.before(at)
		switch st := c.s.Timeline[i]; {
		case st.Fault != nil:
			c.fault(n, st.Fault, at)
		case st.Wait != nil:
			c.scope.Marks = append(c.scope.Marks, st.Wait.ID+".start")
			c.markRef(child(n, "until"), st.Wait.Until)
		}
	}
}

// fault checks the trigger before its own marks count, the heal after the fault is effective.
func (c *checker) fault(n *yaml.Node, f *Fault, at order) {
	trigger := child(n, "at")
	from := trigger
	if trigger.Kind == yaml.MappingNode {
		from = child(trigger, "from")
	}
	c.markRef(from, f.At.From)
	c.predicate(child(trigger, "when"), f.At.When)
	if f.Heal == nil {
		return
	}
	c.scope.Marks = c.before(at + 2)
	c.predicate(child(child(n, "heal"), "when"), f.Heal.When)
}

// settle appends the default wait when the file has none of that id.
func (c *checker) settle() {
	last := "steady.end"
	for _, st := range c.s.Timeline {
		switch {
		case st.Wait != nil && st.Wait.ID == "settle":
			return
		case st.Fault != nil && (st.Fault.Heal != nil || st.Fault.SelfHeals()):
			last = st.Fault.ID + ".healed"
		case st.Fault != nil:
			last = st.Fault.ID + ".effective"
		}
	}
	length := settleMin
	for _, x := range c.s.Expect {
		length = max(length, x.Within+x.Hold+settleExtra)
	}
	c.s.Timeline = append(c.s.Timeline, Step{Wait: &Wait{ID: "settle", Until: predicate.Mark{Name: last,
		Offsets: []predicate.Offset{{Lo: length, Hi: length}}}}})
}

// loads may refer to any mark of the timeline, since they run beside it.
func (c *checker) loads() {
	c.scope.Marks = c.before(orderLoadEnd)
	for i, n := range c.d.loadNodes {
		l := c.s.Loads[i]
		if l.PhaseOf != "" {
			c.markRef(child(n, "at"), l.Start)
			continue
		}
		c.markRef(child(n, "start"), l.Start)
		c.markRef(child(n, "stop"), c.d.stopOf[l.ID])
		if l.To != "gateway" && !c.isWorker(l.To) {
			c.d.fail(child(n, "to"), "unknown destination %q: it is gateway or one of w1..w%d", l.To, c.s.Fleet.Workers)
		}
	}
}

func (c *checker) isWorker(id string) bool {
	return slices.Contains(c.s.WorkerIDs(), id)
}

// expectations checks each rule against the marks of the run and the expectations above it; naming only
// those above keeps the references free of cycles.
func (c *checker) expectations() {
	for i, n := range c.nodes("expect") {
		x := c.s.Expect[i]
		c.unique(n, "id", x.ID)
		c.scope.Marks = c.above(i)
		c.markRef(child(n, "after"), x.After)
		c.markRef(child(n, "over"), x.Over.From)
		c.markRef(child(n, "over"), x.Over.To)
		c.ordered(child(n, "over"), x.Over)
		c.predicate(child(n, ruleKey(x.Op)), x.That)
	}
}

// above lists the marks of the run and of the expectations before the i-th.
func (c *checker) above(i int) []string {
	out := c.before(orderLoadEnd + 1)
	seen := func(name string) func(Expectation) bool {
		return func(x Expectation) bool { return x.ID+".seen" == name }
	}
	return slices.DeleteFunc(out, func(name string) bool {
		return slices.ContainsFunc(c.s.Expect[i:], seen(name)) && !slices.ContainsFunc(c.s.Expect[:i], seen(name))
	})
}

func ruleKey(op string) string {
	if op == OpAfter {
		return "that"
	}
	return op
}

// ordered refuses a window that ends before it begins in every run.
func (c *checker) ordered(n *yaml.Node, r predicate.Range) {
	from, ok1 := c.marks[r.From.Name]
	to, ok2 := c.marks[r.To.Name]
	if !ok1 || !ok2 {
		return
	}
	if from.lo > to.hi && span(r.From) >= span(r.To) {
		c.d.fail(n, "the window %s ends before it begins", r)
		return
	}
	if r.From.Name == r.To.Name && span(r.From) >= span(r.To) {
		c.d.fail(n, "the window %s is empty", r)
	}
}

// span is the sum of a mark's offsets.
func span(m predicate.Mark) time.Duration {
	var d time.Duration
	for _, o := range m.Offsets {
		if o.Minus {
			d -= o.Lo
		} else {
			d += o.Hi
		}
	}
	return d
}

// markRef reports an unknown mark, or one that comes only later.
func (c *checker) markRef(n *yaml.Node, m predicate.Mark) {
	if m.IsZero() {
		return
	}
	err := m.CheckMark(c.scope)
	if err == nil {
		return
	}
	c.d.failAt(n.Line, columnIn(n, m.Col), "%s", c.whyNot(m.Name, err.Msg))
}

// whyNot explains a mark that cannot be named here; msg is the explanation when nothing better is known.
func (c *checker) whyNot(name, msg string) string {
	id, what, _ := strings.Cut(name, ".")
	_, comes := c.marks[name]
	switch {
	case comes && what == "seen":
		return fmt.Sprintf("expectation %s stands further down: a rule may name only those above it", id)
	case comes:
		return fmt.Sprintf("mark %q comes only later in the run", name)
	case what == "heal" && c.healsItself(id):
		return fmt.Sprintf("mark %q never comes: fault %s ends by itself, which is the mark %s.healed", name, id, id)
	case (what == "heal" || what == "healed") && slices.Contains(c.scope.Faults, id):
		return fmt.Sprintf("mark %q never comes: fault %s is not healed", name, id)
	case what == "seen" && c.hasExpectation(id):
		return fmt.Sprintf("mark %q never comes: only after and at_least_once see something", name)
	}
	return msg
}

func (c *checker) healsItself(id string) bool {
	return slices.ContainsFunc(c.s.Timeline, func(st Step) bool { return st.Fault != nil && st.Fault.ID == id && st.Fault.SelfHeals() })
}

func (c *checker) hasExpectation(id string) bool {
	return slices.ContainsFunc(c.s.Expect, func(x Expectation) bool { return x.ID == id })
}

func (c *checker) predicate(n *yaml.Node, x *predicate.Expr) {
	if x == nil {
		return
	}
	for _, err := range x.Check(c.scope) {
		c.d.failAt(n.Line, columnIn(n, err.Col), "%s", err.Msg)
	}
}

// controls must be handicaps that the gateway has: a control that does nothing proves nothing.
func (c *checker) controls() {
	n := c.root.get("control")
	for i, h := range c.s.Control {
		if slices.Contains(contract.Handicaps, h) {
			continue
		}
		at := n
		if n.Kind == yaml.SequenceNode && i < len(n.Content) {
			at = n.Content[i]
		}
		c.d.fail(at, "unknown handicap %q%s", h, suggestAmong(h, contract.Handicaps))
	}
}

func (c *checker) targets() {
	for i, n := range c.nodes("timeline") {
		f := c.s.Timeline[i].Fault
		if f == nil || f.Target.Worker == "" || c.isWorker(f.Target.Worker) {
			continue
		}
		t := child(n, "target")
		c.d.fail(child(t, "worker"), "unknown worker %q: the fleet has w1..w%d", f.Target.Worker, c.s.Fleet.Workers)
	}
}
