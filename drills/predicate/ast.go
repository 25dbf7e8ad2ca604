package predicate

import (
	"strings"
)

// Expr is a parsed predicate. It is immutable and safe for concurrent use.
type Expr struct {
	root node
}

// node is one node of the tree. pos is the byte offset in the source, for messages only: two trees that
// differ in positions alone mean the same.
type node interface {
	pos() int
	// level is the binding strength, from lvOr to lvPrimary, which decides where String needs parentheses.
	level() int
	write(b *strings.Builder)
}

// Binding strengths, weakest first.
const (
	lvOr = iota
	lvAnd
	lvNot
	lvCmp
	lvSide // a side of a comparison: no node has it, anything stronger may stand there bare
	lvSum
	lvTerm
	lvUnary
	lvPostfix
	lvPrimary
)

// number is a literal. Value is in the base unit of Unit: seconds, bytes, or a plain number (a percent is
// a fraction); text is the literal as written.
type number struct {
	at    int
	value float64
	unit  Unit
	text  string
}

// path is a name without parentheses: a series, a mark's instant is never one, `fair_share`, a word that a
// text series is compared with.
type path struct {
	at   int
	name string
}

// call is name(arg). Exactly one of arg, worker is set; of set with worker makes the argument `of of worker`.
type call struct {
	at     int
	name   string
	arg    node
	of     string
	ofAt   int
	worker *workerRef
}

// workerRef names a worker (w3), a rank (w3/0) or the target of a fault (death.target).
type workerRef struct {
	at   int
	name string
}

// unary is `not x` or `-x`.
type unary struct {
	at int
	op string
	x  node
}

// binary is an operator of two operands: or and, the six comparisons, + - * /.
type binary struct {
	at   int
	op   string
	l, r node
}

// moment is a postfix: x at mark, x since mark, x except worker.
type moment struct {
	at     int
	op     string
	x      node
	mark   Mark
	worker *workerRef
}

func (n *number) pos() int { return n.at }
func (n *path) pos() int   { return n.at }
func (n *call) pos() int   { return n.at }
func (n *unary) pos() int  { return n.at }
func (n *binary) pos() int { return n.at }
func (n *moment) pos() int { return n.at }

func (n *number) level() int { return lvPrimary }
func (n *path) level() int   { return lvPrimary }
func (n *call) level() int   { return lvPrimary }
func (n *moment) level() int { return lvPostfix }

// level of `not` is weaker than a comparison, that of a minus stronger than a product.
func (n *unary) level() int {
	if n.op == "not" {
		return lvNot
	}
	return lvUnary
}

func (n *binary) level() int {
	switch n.op {
	case "or":
		return lvOr
	case "and":
		return lvAnd
	case "+", "-":
		return lvSum
	case "*", "/":
		return lvTerm
	}
	return lvCmp
}

// String reprints the predicate with the fewest parentheses that parse to the same tree.
func (e *Expr) String() string {
	var b strings.Builder
	e.root.write(&b)
	return b.String()
}

func (n *number) write(b *strings.Builder)    { b.WriteString(n.text) }
func (n *path) write(b *strings.Builder)      { b.WriteString(n.name) }
func (n *workerRef) write(b *strings.Builder) { b.WriteString(n.name) }

func (n *call) write(b *strings.Builder) {
	b.WriteString(n.name + "(")
	switch {
	case n.of != "":
		b.WriteString(n.of + " of " + n.worker.name)
	case n.worker != nil:
		n.worker.write(b)
	default:
		n.arg.write(b)
	}
	b.WriteString(")")
}

func (n *unary) write(b *strings.Builder) {
	if n.op == "not" {
		b.WriteString("not ")
		writeOperand(b, n.x, lvCmp)
		return
	}
	b.WriteString("-")
	writeOperand(b, n.x, lvPostfix)
}

func (n *binary) write(b *strings.Builder) {
	lv := n.level()
	left, right := lv, lv+1
	if lv == lvCmp {
		left = lvSide // comparisons do not chain
	}
	writeOperand(b, n.l, left)
	b.WriteString(" " + n.op + " ")
	writeOperand(b, n.r, right)
}

func (n *moment) write(b *strings.Builder) {
	writeOperand(b, n.x, lvPostfix)
	b.WriteString(" " + n.op + " ")
	if n.worker != nil {
		n.worker.write(b)
		return
	}
	b.WriteString(n.mark.String())
}

// writeOperand parenthesises an operand that binds more weakly than its place allows. A mark swallows the
// offsets after it (`x at m + 2s`), so inside arithmetic a moment is always parenthesised.
func writeOperand(b *strings.Builder, n node, min int) {
	_, isMoment := n.(*moment)
	if n.level() < min || (isMoment && min > lvSide) {
		b.WriteString("(")
		n.write(b)
		b.WriteString(")")
		return
	}
	n.write(b)
}
