package predicate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Scope is what a predicate may refer to: workers w1..wN with Ranks ranks each, the ids of faults (for
// ID.target) and the names of marks.
type Scope struct {
	Workers int
	Ranks   int
	Faults  []string
	Marks   []string
}

// Check finds what is wrong with a predicate in a scope: unknown series, marks and workers, and operations
// that make no sense. The whole must be true or false, not a number. Errors are in source order.
func (e *Expr) Check(s Scope) []*Error {
	c := &checker{scope: s}
	if t := c.node(e.root, false); t.kind != typBool && t.kind != typBad {
		c.fail(e.root.pos(), "%s is %s, not a condition: compare it with something", e, t)
	}
	slices.SortStableFunc(c.errs, func(a, b *Error) int { return a.Col - b.Col })
	return c.errs
}

// CheckMark finds what is wrong with a mark expression in a scope.
func (m Mark) CheckMark(s Scope) *Error {
	if slices.Contains(s.Marks, m.Name) {
		return nil
	}
	return &Error{m.Col, fmt.Sprintf("unknown mark %q%s", m.Name, Suggest(m.Name, s.Marks))}
}

// steadyPrefix makes a reducer range over the steady window.
const steadyPrefix = "steady."

// typKind is what a node yields. typBad stands for a mistake already reported, and fits everywhere, so that
// one slip gives one message.
type typKind int

const (
	typBad typKind = iota // already reported
	typNum
	typBool
	typText
)

// typ is what a node evaluates to.
type typ struct {
	kind   typKind
	unit   Unit
	any    bool // the literal 0, which fits every unit
	series Series
}

func (t typ) String() string {
	switch {
	case t.kind == typBool:
		return "a condition"
	case t.kind == typText:
		return "a word"
	case t.unit == UnitTime:
		return "a duration"
	case t.unit == UnitBytes:
		return "a size"
	}
	return "a number"
}

// checker collects every mistake of one predicate.
type checker struct {
	scope Scope
	errs  []*Error
}

func (c *checker) fail(at int, format string, args ...any) typ {
	c.errs = append(c.errs, &Error{at, fmt.Sprintf(format, args...)})
	return typ{}
}

// node types a node; lifted says that a surrounding all, any, count... ranges over the fleet.
func (c *checker) node(n node, lifted bool) typ {
	switch n := n.(type) {
	case *number:
		return typ{kind: typNum, unit: n.unit, any: n.value == 0 && n.unit == UnitNone}
	case *path:
		return c.path(n, lifted)
	case *call:
		return c.call(n, lifted)
	case *unary:
		return c.unary(n, lifted)
	case *binary:
		return c.binary(n, lifted)
	case *moment:
		return c.moment(n, lifted)
	}
	return typ{}
}

// path types a bare name: legal for what exists once, or for a per-worker series inside a lift.
func (c *checker) path(n *path, lifted bool) typ {
	if n.name == "fair_share" {
		return typ{kind: typNum}
	}
	s, ok := catalogue[n.name]
	switch {
	case !ok && slices.Contains(functions, n.name):
		return c.fail(n.at, "%s needs an argument, as in %s(ttft)", n.name, n.name)
	case !ok:
		return c.fail(n.at, "unknown series %q%s", n.name, Suggest(n.name, names()))
	case s.Kind == KindStream:
		return c.fail(n.at, "%s is a stream of requests: reduce it, as in count(%s) or p99(ttft)", n.name, n.name)
	case s.Per != PerFleet && !lifted:
		return c.fail(n.at, "%s exists per %s: name one, as in %s(w1), or range over the fleet, as in all(...), count(...) or sum(...)", n.name, s.Per, n.name)
	}
	return seriesType(s)
}

func seriesType(s Series) typ {
	switch {
	case s.Bool:
		return typ{kind: typBool, series: s}
	case s.Text:
		return typ{kind: typText, series: s}
	}
	return typ{kind: typNum, unit: s.Unit, series: s}
}

// call types name(...): a function, or a series of one worker.
func (c *checker) call(n *call, lifted bool) typ {
	name := strings.TrimPrefix(n.name, steadyPrefix)
	if slices.Contains(functions, name) {
		return c.function(n, name, lifted)
	}
	s, ok := catalogue[n.name]
	switch {
	case !ok:
		return c.fail(n.at, "unknown series or function %q%s", n.name, Suggest(n.name, names()))
	case n.of != "":
		return c.fail(n.at, "%s takes a worker, not a stream", n.name)
	case n.worker == nil && isPath(n.arg):
		return c.fail(n.arg.pos(), "%q is not a worker; workers are w1..w%d or FAULT.target", n.arg.(*path).name, c.scope.Workers)
	case n.worker == nil:
		return c.fail(n.arg.pos(), "%s takes a worker such as w1, not an expression", n.name)
	case s.Kind == KindStream:
		return c.fail(n.at, "%s is a stream of requests: narrow it with `of`, as in count(%s of %s)", n.name, n.name, n.worker.name)
	case s.Per == PerFleet:
		return c.fail(n.at, "%s is of the whole fleet and takes no worker", n.name)
	case s.Per == PerWorker && strings.Contains(n.worker.name, "/"):
		return c.fail(n.worker.at, "%s exists per worker, not per rank: write %s", n.name, n.worker.name[:strings.Index(n.worker.name, "/")])
	}
	c.worker(n.worker)
	if s.Per == PerRank && s.Text && !strings.Contains(n.worker.name, "/") && c.scope.Ranks > 1 {
		return c.fail(n.worker.at, "%s exists per rank: write %s/0", n.name, n.worker.name)
	}
	return seriesType(s)
}

// worker checks a reference against the fleet's size and the faults' ids.
func (c *checker) worker(w *workerRef) {
	if fault, ok := strings.CutSuffix(w.name, ".target"); ok {
		if !slices.Contains(c.scope.Faults, fault) {
			c.fail(w.at, "unknown fault %q in %s%s", fault, w.name, Suggest(fault, c.scope.Faults))
		}
		return
	}
	id, rank, hasRank := strings.Cut(w.name, "/")
	n, err := strconv.Atoi(strings.TrimPrefix(id, "w"))
	if !isWorkerName(id) || err != nil || n < 1 || n > c.scope.Workers {
		c.fail(w.at, "unknown worker %q: the fleet has w1..w%d", w.name, c.scope.Workers)
		return
	}
	if r, err := strconv.Atoi(rank); hasRank && (err != nil || r >= max(1, c.scope.Ranks)) {
		c.fail(w.at, "unknown rank %q: %s has ranks 0..%d", w.name, id, max(1, c.scope.Ranks)-1)
	}
}

// function checks abs, the lifts and the reducers.
func (c *checker) function(n *call, name string, lifted bool) typ {
	steady := name != n.name
	if n.worker != nil && n.of == "" {
		return c.fail(n.worker.at, "%s takes a series, not a worker", name)
	}
	if name == "abs" && steady {
		return c.fail(n.at, "steady.abs makes no sense: write abs of a steady figure")
	}
	if name == "abs" {
		t := c.number(n.arg, lifted)
		return typ{kind: typNum, unit: t.unit}
	}
	if s, ok := streamOf(n); ok {
		return c.reducer(n, name, s)
	}
	if n.of != "" {
		if name == "share" && slices.Contains(eventNames, n.of) {
			c.worker(n.worker)
			return typ{kind: typNum}
		}
		return c.fail(n.ofAt, "unknown stream %q%s", n.of, Suggest(n.of, eventNames))
	}
	lifts := hasBare(n.arg)
	switch {
	case name == "rate" || name == "share" || quantiles[name].min > 0:
		return c.notReducible(n, name)
	case !lifts && (name != "max" && name != "min" && name != "mean"):
		t := c.node(n.arg, true)
		if t.kind == typBad {
			return t
		}
		return c.fail(n.arg.pos(), "nothing in %s ranges over the fleet: leave a series without its worker, as in count(routable)", exprString(n))
	case steady && lifts:
		return c.fail(n.at, "%s takes a stream or a named gauge: a lift has no steady window of its own", n.name)
	}
	return c.lift(n, name)
}

// notReducible explains why a quantile, rate or share cannot be taken of what is not a stream.
func (c *checker) notReducible(n *call, name string) typ {
	if p, ok := n.arg.(*path); ok {
		if _, known := catalogue[p.name]; !known {
			return c.fail(p.at, "unknown series %q%s", p.name, Suggest(p.name, names()))
		}
	}
	return c.fail(n.arg.pos(), "%s needs a stream of requests such as ttft or failed, not %s", name, (&Expr{n.arg}).String())
}

// lift checks all, any, count, sum, max, min, mean and spread over workers or samples.
func (c *checker) lift(n *call, name string) typ {
	if name == "all" || name == "any" || name == "count" {
		if t := c.node(n.arg, true); t.kind == typNum || t.kind == typText {
			c.fail(n.arg.pos(), "%s needs a condition, and %s is %s", name, (&Expr{n.arg}).String(), t)
		}
		if name == "count" {
			return typ{kind: typNum}
		}
		return typ{kind: typBool}
	}
	t := c.number(n.arg, true)
	return typ{kind: typNum, unit: t.unit}
}

// reducer checks that a stream is reduced in a way that its values allow: a failure has no p99.
func (c *checker) reducer(n *call, name string, s Series) typ {
	if n.worker != nil {
		c.worker(n.worker)
	}
	switch name {
	case "count", "rate":
		return typ{kind: typNum}
	case "share":
		if !slices.Contains(eventNames, s.Name) {
			return c.fail(n.at, "a share of %s makes no sense: it is a stream of %s values", s.Name, s.Unit)
		}
		return typ{kind: typNum}
	case "all", "any", "sum", "spread":
		return c.fail(n.at, "%s ranges over workers; a stream of requests takes p50 p90 p99 p999 mean max min rate count share", name)
	}
	if s.Unit == UnitNone {
		return c.fail(n.at, "%s has no size to take the %s of: use count, rate or share", s.Name, name)
	}
	return typ{kind: typNum, unit: s.Unit}
}

// number requires a numeric operand.
func (c *checker) number(n node, lifted bool) typ {
	t := c.node(n, lifted)
	if t.kind == typBool || t.kind == typText {
		return c.fail(n.pos(), "%s is %s, not a number", exprString(n), t)
	}
	return t
}

func (c *checker) condition(n node, lifted bool) {
	if t := c.node(n, lifted); t.kind == typNum || t.kind == typText {
		c.fail(n.pos(), "%s is %s, not a condition: compare it with something", exprString(n), t)
	}
}

func (c *checker) unary(n *unary, lifted bool) typ {
	if n.op == "not" {
		c.condition(n.x, lifted)
		return typ{kind: typBool}
	}
	return c.number(n.x, lifted)
}

// binary types an operator; both sides are always checked, so that all mistakes show at once.
func (c *checker) binary(n *binary, lifted bool) typ {
	switch n.level() {
	case lvOr, lvAnd:
		c.condition(n.l, lifted)
		c.condition(n.r, lifted)
		return typ{kind: typBool}
	case lvCmp:
		if c.words(n, lifted) {
			return typ{kind: typBool}
		}
		l, r := c.number(n.l, lifted), c.number(n.r, lifted)
		c.sameUnit(n, l, r)
		return typ{kind: typBool}
	case lvSum:
		l, r := c.number(n.l, lifted), c.number(n.r, lifted)
		c.sameUnit(n, l, r)
		if l.any {
			l = r
		}
		return typ{kind: l.kind, unit: l.unit}
	}
	return c.product(n, c.number(n.l, lifted), c.number(n.r, lifted))
}

// words handles `veto(w3) == dead`: a text series beside a bare word or another text series.
func (c *checker) words(n *binary, lifted bool) bool {
	ls, lok := textSeries(n.l)
	rs, rok := textSeries(n.r)
	if !lok && !rok {
		return false
	}
	if n.op != "==" && n.op != "!=" {
		c.fail(n.at, "words can only be compared with == and !=")
		return true
	}
	if lok {
		c.node(n.l, lifted)
	} else {
		c.word(n.l, rs)
	}
	if rok {
		c.node(n.r, lifted)
	} else {
		c.word(n.r, ls)
	}
	return true
}

// word checks the other side of `veto(w3) == dead` against the closed list, where there is one.
func (c *checker) word(n node, s Series) {
	p, ok := n.(*path)
	if !ok {
		c.fail(n.pos(), "%s is a word: compare it with one of %s", s.Name, strings.Join(s.Words, ", "))
		return
	}
	if len(s.Words) > 0 && !slices.Contains(s.Words, p.name) {
		c.fail(p.at, "%s is never %q%s: it is one of %s", s.Name, p.name, Suggest(p.name, s.Words), strings.Join(s.Words, ", "))
	}
}

// sameUnit refuses to compare or add different dimensions: 5 beside a duration may mean 5 s or 5 ms, and a
// guess would be wrong by a thousand.
func (c *checker) sameUnit(n *binary, l, r typ) {
	if l.kind == typBad || r.kind == typBad || l.any || r.any || l.unit == r.unit {
		return
	}
	hint := ""
	if lit, ok := n.r.(*number); ok && l.unit == UnitTime && lit.unit == UnitNone {
		hint = fmt.Sprintf(": write %ss or %sms", lit.text, lit.text)
	}
	c.fail(n.at, "%s cannot stand beside %s%s", l, r, hint)
}

// product types * and /: a dimension times a plain number keeps it, a quotient of equals loses it.
func (c *checker) product(n *binary, l, r typ) typ {
	switch {
	case l.kind == typBad || r.kind == typBad:
		return typ{}
	case n.op == "/" && l.unit == r.unit:
		return typ{kind: typNum}
	case r.unit == UnitNone:
		return typ{kind: typNum, unit: l.unit}
	case n.op == "*" && l.unit == UnitNone:
		return typ{kind: typNum, unit: r.unit}
	}
	return c.fail(n.at, "%s %s %s makes no sense", l, n.op, r)
}

// moment checks a mark or an excepted worker. A random mark would make one rule mean two things.
func (c *checker) moment(n *moment, lifted bool) typ {
	if n.worker != nil {
		c.worker(n.worker)
	} else if err := n.mark.CheckMark(c.scope); err != nil {
		c.errs = append(c.errs, err)
	} else if n.mark.Random() {
		c.fail(n.at, "a mark in a predicate cannot be random: %s", n.mark)
	}
	return c.node(n.x, lifted)
}
