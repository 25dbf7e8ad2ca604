package predicate

import (
	"fmt"
	"slices"
	"strings"
)

// Marks lists the marks that a predicate names, without duplicates, in source order. steady.p99(x) needs
// both ends of the steady window.
func (e *Expr) Marks() []string {
	var out []string
	add := func(name string) {
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	walk(e.root, func(n node) {
		switch n := n.(type) {
		case *moment:
			if n.worker == nil {
				add(n.mark.Name)
			}
		case *call:
			if strings.HasPrefix(n.name, steadyPrefix) {
				add("steady.start")
				add("steady.end")
			}
		}
	})
	return out
}

// SteadyNeeds lists the conditions that a steady state must meet before the quantiles of it that the
// predicate names are known, such as count(ttft) >= 100.
func (e *Expr) SteadyNeeds() []string {
	var out []string
	walk(e.root, func(n node) {
		c, ok := n.(*call)
		if !ok || !strings.HasPrefix(c.name, steadyPrefix) {
			return
		}
		q, isQuantile := quantiles[strings.TrimPrefix(c.name, steadyPrefix)]
		if s, ok := streamOf(c); ok && isQuantile {
			need := fmt.Sprintf("count(%s) >= %d", s.Name, q.min)
			if c.worker != nil {
				need = fmt.Sprintf("count(%s of %s) >= %d", s.Name, c.worker.name, q.min)
			}
			out = append(out, need)
		}
	})
	return out
}

// Sampled reports whether the predicate reads samples, as opposed to requests and links alone: a hole in
// the samples can then hide something from it.
func (e *Expr) Sampled() bool {
	found := false
	check := func(name string) {
		s, ok := catalogue[name]
		found = found || name == "fair_share" || (ok && s.Kind != KindStream && (!s.derived || name == "hung_streams"))
	}
	walk(e.root, func(n node) {
		switch n := n.(type) {
		case *path:
			check(n.name)
		case *call:
			check(n.name)
		}
	})
	return found
}

// Tracks reports whether the predicate reduces a gauge over the samples of a window, so that a hole inside
// the window matters and not only one at its ends. A counter's increase does not care how it came about.
func (e *Expr) Tracks() bool {
	found := false
	walk(e.root, func(n node) {
		c, ok := n.(*call)
		if !ok || c.arg == nil || isStream(c) || c.name == "abs" {
			return
		}
		name := strings.TrimPrefix(c.name, steadyPrefix)
		found = found || name == "mean" || (!hasBare(c.arg) && (name == "max" || name == "min"))
	})
	return found
}

// walk visits a tree from the top, parents first.
func walk(n node, visit func(node)) {
	visit(n)
	switch n := n.(type) {
	case *call:
		if n.arg != nil {
			walk(n.arg, visit)
		}
	case *unary:
		walk(n.x, visit)
	case *binary:
		walk(n.l, visit)
		walk(n.r, visit)
	case *moment:
		walk(n.x, visit)
	}
}

func isPath(n node) bool { _, ok := n.(*path); return ok }

func exprString(n node) string { return (&Expr{n}).String() }

// streamOf is the stream that a call reduces, if its argument is one.
func streamOf(n *call) (Series, bool) {
	name := n.of
	if p, ok := n.arg.(*path); ok {
		name = p.name
	}
	s, ok := catalogue[name]
	return s, ok && s.Kind == KindStream
}

// hasBare reports whether a per-worker series stands without its worker, outside of an inner lift.
func hasBare(n node) bool {
	switch n := n.(type) {
	case *path:
		s, ok := catalogue[n.name]
		return ok && s.Per != PerFleet
	case *call:
		return n.name == "abs" && n.arg != nil && hasBare(n.arg)
	case *unary:
		return hasBare(n.x)
	case *binary:
		return hasBare(n.l) || hasBare(n.r)
	case *moment:
		return hasBare(n.x)
	}
	return false
}

// textSeries is the word series that a node reads, bare, with a worker or at a mark.
func textSeries(n node) (Series, bool) {
	var s Series
	switch n := n.(type) {
	case *path:
		s = catalogue[n.name]
	case *call:
		s = catalogue[n.name]
	case *moment:
		return textSeries(n.x)
	}
	return s, s.Text
}
