package predicate

import (
	"fmt"
	"strings"
)

// Parse parses a predicate. The error is an *Error.
func Parse(src string) (*Expr, error) {
	p, err := newParser(src)
	if err != nil {
		return nil, err
	}
	n, err := p.or()
	if err != nil {
		return nil, err
	}
	if err := p.end(); err != nil {
		return nil, err
	}
	return &Expr{root: n}, nil
}

// ParseMark parses a mark expression such as `death.effective + 7s`. The error is an *Error.
func ParseMark(src string) (Mark, error) {
	p, err := newParser(src)
	if err != nil {
		return Mark{}, err
	}
	m, err := p.mark()
	if err != nil {
		return Mark{}, err
	}
	return m, p.end()
}

// ParseRange parses `mark..mark`. The error is an *Error.
func ParseRange(src string) (Range, error) {
	p, err := newParser(src)
	if err != nil {
		return Range{}, err
	}
	var r Range
	if r.From, err = p.mark(); err != nil {
		return Range{}, err
	}
	if !p.accept("..") {
		return Range{}, p.fail(`expected ".." and a second mark, found %s`, p.peek())
	}
	if r.To, err = p.mark(); err != nil {
		return Range{}, err
	}
	return r, p.end()
}

// parser is a recursive descent over the tokens of one text.
type parser struct {
	toks  []token
	i     int
	depth int
}

func newParser(src string) (*parser, error) {
	toks, err := lex(src)
	if err != nil {
		return nil, err
	}
	return &parser{toks: toks}, nil
}

func (p *parser) peek() token { return p.toks[p.i] }

// next consumes a token; the end stays, so that looking ahead is always safe.
func (p *parser) next() token {
	t := p.toks[p.i]
	if t.kind != tokEOF {
		p.i++
	}
	return t
}

// accept consumes the operator or keyword text if it is next.
func (p *parser) accept(text string) bool {
	t := p.peek()
	if t.text != text || (t.kind != tokOp && t.kind != tokIdent) {
		return false
	}
	p.i++
	return true
}

func (p *parser) fail(format string, args ...any) error {
	return &Error{p.peek().at, fmt.Sprintf(format, args...)}
}

func (p *parser) end() error {
	if t := p.peek(); t.kind != tokEOF {
		return p.fail("unexpected %s after the end of the expression", t)
	}
	return nil
}

// enter counts nesting, so that a wall of parentheses is an error and not a stack overflow.
func (p *parser) enter() error {
	p.depth++
	if p.depth > maxDepth {
		return p.fail("nested deeper than %d", maxDepth)
	}
	return nil
}

// or is where nesting comes back to: parentheses and arguments all pass here, so the depth is counted here.
func (p *parser) or() (node, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	return p.chain(p.and, "or")
}

func (p *parser) and() (node, error) { return p.chain(p.not, "and") }

// not takes one comparison, as the grammar says: `not a == b` negates the comparison.
func (p *parser) not() (node, error) {
	at := p.peek().at
	if !p.accept("not") {
		return p.cmp()
	}
	x, err := p.cmp()
	if err != nil {
		return nil, err
	}
	return &unary{at: at, op: "not", x: x}, nil
}

// cmp does not chain: `a < b < c` is an error, not a comparison of a truth with c. Longer operators are
// tried first.
func (p *parser) cmp() (node, error) {
	l, err := p.sum()
	if err != nil {
		return nil, err
	}
	for _, op := range []string{"<=", ">=", "==", "!=", "<", ">"} {
		at := p.peek().at
		if !p.accept(op) {
			continue
		}
		r, err := p.sum()
		if err != nil {
			return nil, err
		}
		return &binary{at: at, op: op, l: l, r: r}, nil
	}
	return l, nil
}

func (p *parser) sum() (node, error)  { return p.chain(p.term, "+", "-") }
func (p *parser) term() (node, error) { return p.chain(p.unary, "*", "/") }

// chain parses operand {op operand}, left-associative.
func (p *parser) chain(operand func() (node, error), ops ...string) (node, error) {
	l, err := operand()
	if err != nil {
		return nil, err
	}
	for {
		t, found := p.peek(), false
		for _, op := range ops {
			found = found || p.accept(op)
		}
		if !found {
			return l, nil
		}
		r, err := operand()
		if err != nil {
			return nil, err
		}
		l = &binary{at: t.at, op: t.text, l: l, r: r}
	}
}

func (p *parser) unary() (node, error) {
	at := p.peek().at
	if !p.accept("-") {
		return p.postfix()
	}
	x, err := p.postfix()
	if err != nil {
		return nil, err
	}
	return &unary{at: at, op: "-", x: x}, nil
}

// postfix binds at, since and except to the value before them, the nearest first.
func (p *parser) postfix() (node, error) {
	x, err := p.primary()
	if err != nil {
		return nil, err
	}
	for {
		t := p.peek()
		switch {
		case p.accept("at"), p.accept("since"):
			m, err := p.mark()
			if err != nil {
				return nil, err
			}
			x = &moment{at: t.at, op: t.text, x: x, mark: m}
		case p.accept("except"):
			w, err := p.worker()
			if err != nil {
				return nil, err
			}
			x = &moment{at: t.at, op: t.text, x: x, worker: w}
		default:
			return x, nil
		}
	}
}

func (p *parser) primary() (node, error) {
	t := p.peek()
	switch {
	case t.kind == tokNumber:
		p.next()
		return &number{at: t.at, value: t.num, unit: t.unit, text: t.text}, nil
	case p.accept("("):
		x, err := p.or()
		if err != nil {
			return nil, err
		}
		return x, p.close()
	case (t.kind == tokIdent && !keywords[t.text]) || t.kind == tokPath:
		p.next()
		if !p.accept("(") {
			return &path{at: t.at, name: t.text}, nil
		}
		return p.call(t)
	case t.kind == tokWorker:
		return nil, p.fail("%s names a rank, not a value; a rank stands inside a series, as in blocks(%s)", t, t.text)
	}
	return nil, p.fail("expected a value, found %s", t)
}

func (p *parser) close() error {
	if !p.accept(")") {
		return p.fail(`expected ")", found %s`, p.peek())
	}
	return nil
}

// call parses what stands between the parentheses: `new_prefix of w5`, a worker, or a predicate.
func (p *parser) call(name token) (node, error) {
	c := &call{at: name.at, name: name.text}
	t, after := p.peek(), token{}
	if p.i+1 < len(p.toks) {
		after = p.toks[p.i+1]
	}
	var err error
	switch {
	case t.kind == tokIdent && after.kind == tokIdent && after.text == "of":
		p.i += 2
		c.of, c.ofAt = t.text, t.at
		c.worker, err = p.worker()
	case after.kind == tokOp && after.text == ")" && isWorkerToken(t):
		c.worker, err = p.worker()
	default:
		c.arg, err = p.or()
	}
	if err != nil {
		return nil, err
	}
	return c, p.close()
}

// isWorkerToken reports whether a lone argument is a worker rather than a series: w3, w3/0, death.target.
func isWorkerToken(t token) bool {
	switch t.kind {
	case tokWorker:
		return true
	case tokPath:
		return strings.HasSuffix(t.text, ".target")
	case tokIdent:
		return isWorkerName(t.text)
	}
	return false
}

// isWorkerName reports whether a name has the form of a worker id, w1..wN.
func isWorkerName(s string) bool {
	if len(s) < 2 || s[0] != 'w' {
		return false
	}
	return strings.Trim(s[1:], "0123456789") == ""
}

func (p *parser) worker() (*workerRef, error) {
	t := p.peek()
	if t.kind != tokIdent && t.kind != tokPath && t.kind != tokWorker {
		return nil, p.fail("expected a worker such as w3, w3/0 or death.target, found %s", t)
	}
	p.next()
	return &workerRef{at: t.at, name: t.text}, nil
}

// mark parses path {("+"|"-") dur}. An operator that no duration follows is left to the caller, so that
// `x at m + 3` adds to x.
func (p *parser) mark() (Mark, error) {
	t := p.peek()
	if (t.kind != tokIdent || keywords[t.text]) && t.kind != tokPath {
		return Mark{}, p.fail("expected a mark such as death.effective, found %s", t)
	}
	p.next()
	m := Mark{Name: t.text, Col: t.at}
	for {
		op := p.peek()
		if op.kind != tokOp || (op.text != "+" && op.text != "-") || !p.durationFollows() {
			return m, nil
		}
		p.next()
		o, err := p.offset()
		if err != nil {
			return Mark{}, err
		}
		o.Minus = op.text == "-"
		m.Offsets = append(m.Offsets, o)
	}
}

// durationFollows looks past the operator at hand. tokEOF ends the tokens, so i+1 exists.
func (p *parser) durationFollows() bool {
	t := p.toks[p.i+1]
	return (t.kind == tokNumber && t.unit == UnitTime) || (t.kind == tokIdent && t.text == "uniform")
}

// offset parses a duration or a uniform draw; durationFollows has seen that one of them is there.
func (p *parser) offset() (Offset, error) {
	if !p.accept("uniform") {
		d := p.next().dur
		return Offset{Lo: d, Hi: d}, nil
	}
	if !p.accept("(") {
		return Offset{}, p.fail(`expected "(" after uniform, found %s`, p.peek())
	}
	lo := p.next()
	if lo.kind != tokNumber || lo.unit != UnitTime || !p.accept("..") {
		return Offset{}, &Error{lo.at, "uniform takes two durations, as in uniform(0s..2s)"}
	}
	hi := p.next()
	if hi.kind != tokNumber || hi.unit != UnitTime || hi.dur < lo.dur {
		return Offset{}, &Error{hi.at, "uniform takes two durations, the smaller one first, as in uniform(0s..2s)"}
	}
	return Offset{Lo: lo.dur, Hi: hi.dur}, p.close()
}

var keywords = map[string]bool{"and": true, "or": true, "not": true, "at": true, "since": true, "except": true, "of": true}
