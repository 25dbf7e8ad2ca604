package predicate

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// samePositions ignores where a node stood: two trees that differ in that alone mean the same.
var samePositions = cmp.Options{
	cmp.AllowUnexported(Expr{}, number{}, path{}, call{}, workerRef{}, unary{}, binary{}, moment{}),
	cmp.FilterPath(func(p cmp.Path) bool {
		name := p.Last().String()
		return slices.Contains([]string{".at", ".ofAt", ".Col"}, name)
	}, cmp.Ignore()),
}

// TestReprint: the printed form of a predicate parses to the same predicate, for any tree the grammar has.
func TestReprint(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := &Expr{root: drawNode(t, 4)}
		got, err := Parse(want.String())
		if err != nil {
			t.Fatalf("%s: %v", want, err)
		}
		if d := cmp.Diff(want, got, samePositions); d != "" {
			t.Fatalf("%s\n%s", want, d)
		}
		if got.String() != want.String() {
			t.Fatalf("%s is reprinted as %s", want, got)
		}
	})
}

// TestReprintMark: the same for marks.
func TestReprintMark(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawMark(t, true)
		got, err := ParseMark(want.String())
		if err != nil {
			t.Fatalf("%s: %v", want, err)
		}
		if d := cmp.Diff(want, got, samePositions); d != "" {
			t.Fatalf("%s\n%s", want, d)
		}
	})
}

func drawNode(t *rapid.T, depth int) node {
	kinds := []string{"number", "path", "worker"}
	if depth > 0 {
		kinds = append(kinds, "call", "of", "not", "minus", "binary", "binary", "at", "except")
	}
	sub := func() node { return drawNode(t, depth-1) }
	switch rapid.SampledFrom(kinds).Draw(t, "kind") {
	case "number":
		text := rapid.SampledFrom([]string{"0", "3", "2.5s", "100ms", "1m30s", "50%", "1GB", "0.125"}).Draw(t, "number")
		toks, err := lex(text)
		if err != nil {
			t.Fatal(err)
		}
		return &number{value: toks[0].num, unit: toks[0].unit, text: text}
	case "path":
		return &path{name: rapid.SampledFrom([]string{"fair_share", "routable", "error_rate", "resyncs.restart", "dead", "half-open"}).Draw(t, "path")}
	case "worker":
		return &call{name: "inflight", worker: drawWorker(t)}
	case "call":
		arg := sub()
		// A lone worker name in parentheses is a worker, so no series may be called like one.
		return &call{name: rapid.SampledFrom([]string{"abs", "sum", "steady.p99"}).Draw(t, "function"), arg: arg}
	case "of":
		return &call{name: "share", of: "new_prefix", worker: drawWorker(t)}
	case "not":
		// `not` takes a comparison; what binds more weakly is printed in parentheses.
		return &unary{op: "not", x: sub()}
	case "minus":
		return &unary{op: "-", x: sub()}
	case "at":
		return &moment{op: rapid.SampledFrom([]string{"at", "since"}).Draw(t, "op"), x: sub(), mark: drawMark(t, false)}
	case "except":
		return &moment{op: "except", x: sub(), worker: drawWorker(t)}
	}
	ops := []string{"or", "and", "<", "<=", "==", "!=", ">=", ">", "+", "-", "*", "/"}
	return &binary{op: rapid.SampledFrom(ops).Draw(t, "op"), l: sub(), r: sub()}
}

func drawWorker(t *rapid.T) *workerRef {
	return &workerRef{name: rapid.SampledFrom([]string{"w3", "w12/1", "death.target", "first-kill.target"}).Draw(t, "worker")}
}

func drawMark(t *rapid.T, random bool) Mark {
	m := Mark{Name: rapid.SampledFrom([]string{"steady.end", "death.effective", "out-of-routing.seen"}).Draw(t, "mark")}
	for range rapid.IntRange(0, 2).Draw(t, "offsets") {
		lo := time.Duration(rapid.IntRange(0, 200_000).Draw(t, "ms")) * time.Millisecond
		o := Offset{Minus: rapid.Bool().Draw(t, "minus"), Lo: lo, Hi: lo}
		if random && rapid.Bool().Draw(t, "uniform") {
			o.Hi += time.Duration(rapid.IntRange(1, 5000).Draw(t, "width")) * time.Millisecond
		}
		m.Offsets = append(m.Offsets, o)
	}
	return m
}

// TestDraw: a drawn mark is fixed, and lies in what the undrawn one allowed.
func TestDraw(t *testing.T) {
	m, err := ParseMark("steady.end - 1s + uniform(0s..2s)")
	if err != nil {
		t.Fatal(err)
	}
	fixed := m.Draw(func(lo, hi time.Duration) time.Duration { return (lo + hi) / 2 })
	if !m.Random() || fixed.Random() || fixed.String() != "steady.end - 1s + 1s" {
		t.Errorf("%s", fixed)
	}
	wide := m.From(fixed.From(interval(10, 10)))
	if wide != interval(9, 11) {
		t.Errorf("%v", wide)
	}
}

// FuzzParse: no text makes the parser panic or its printer print what it cannot read; errors point into
// the text.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"count(failed) <= open_requests(death.target) at death.effective", "not routable(w3) and p99(ttft) <= 2 * steady.p99(ttft) + 500ms",
		"share(new_prefix of w5) >= 90%", "a at m + uniform(0s..2s)", "((((", "-1 - -1", "w3/0", "all(abs(gateway_load - engine_running) <= 4) except w2", "1..2", "9e9", "\xc2\xb5"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, src string) {
		x, err := Parse(src)
		if err != nil {
			if e, ok := err.(*Error); !ok || e.Col < 0 || e.Col > len(src) || e.Msg == "" {
				t.Errorf("%q: %#v", src, err)
			}
			return
		}
		again, err := Parse(x.String())
		if err != nil || again.String() != x.String() {
			t.Errorf("%q is printed as %q, which reads as %v (%v)", src, x, again, err)
		}
		x.Check(Scope{Workers: 3, Ranks: 1, Faults: []string{"death"}, Marks: []string{"death.effective"}})
	})
}

// TestBounds: size and depth are errors, not a stack overflow.
func TestBounds(t *testing.T) {
	for _, src := range []string{strings.Repeat("(", 2000), strings.Repeat("not ", 5), strings.Repeat("1+", 5000), strings.Repeat("abs(", 900)} {
		if _, err := Parse(src); err == nil {
			t.Errorf("%.20s... is accepted", src)
		}
	}
}
