package predicate

// Atom takes apart a predicate of the form `series(worker)` or `not series(worker)`, and `series` of the
// fleet with an empty worker. ok is false for any other form.
func (e *Expr) Atom() (series, worker string, negated, ok bool) {
	n := e.root
	if u, is := n.(*unary); is && u.op == "not" {
		negated, n = true, u.x
	}
	switch n := n.(type) {
	case *path:
		return n.name, "", negated, true
	case *call:
		if n.worker != nil && n.of == "" {
			return n.name, n.worker.name, negated, true
		}
	}
	return "", "", false, false
}

// Comparison takes apart a predicate of the form `left op right`. literal says that right is a number as
// written, so that its value need not be explained.
func (e *Expr) Comparison() (left, op, right string, literal, ok bool) {
	b, is := e.root.(*binary)
	if !is || b.level() != lvCmp {
		return "", "", "", false, false
	}
	_, literal = b.r.(*number)
	return exprString(b.l), b.op, exprString(b.r), literal, true
}
