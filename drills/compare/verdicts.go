package compare

import (
	"fmt"
	"slices"
	"strings"

	"fleetdrill/drills/judge"
)

// Change is one expectation in two judgements. Was or Now is empty when that judgement had no such
// expectation; Result is the newer one, or the older of one that is gone.
type Change struct {
	judge.Result
	Was judge.Verdict `json:"was"`
	Now judge.Verdict `json:"now"`
	// Reworded is set when the rule behind the id is not the same text in both.
	Reworded bool `json:"reworded,omitempty"`
}

// Same reports whether the expectation is in both judgements with one verdict.
func (c Change) Same() bool { return c.Was == c.Now }

// Verdicts pairs expectations by id: those of now in their order, then those that are gone.
func Verdicts(was, now []judge.Result) []Change {
	var out []Change
	for _, n := range now {
		c := Change{Result: n, Now: n.Verdict}
		if i := index(was, n.ID); i >= 0 {
			c.Was, c.Reworded = was[i].Verdict, was[i].Rule != n.Rule
		}
		out = append(out, c)
	}
	// What is gone comes last: an edit that drops an expectation must not go unseen.
	for _, w := range was {
		if index(now, w.ID) < 0 {
			out = append(out, Change{Result: w, Was: w.Verdict})
		}
	}
	return out
}

// Differ counts the expectations whose verdicts are not the same.
func Differ(cs []Change) int {
	n := 0
	for _, c := range cs {
		if !c.Same() {
			n++
		}
	}
	return n
}

// index finds an expectation by its id, which is unique within a scenario.
func index(rs []judge.Result, id string) int {
	return slices.IndexFunc(rs, func(r judge.Result) bool { return r.ID == id })
}

// Changes prints one line per expectation: its old verdict and its new one, its id and its sentence.
func Changes(cs []Change) string {
	var b strings.Builder
	arrows := make([]string, len(cs))
	wide, ids := 0, 0
	for i, c := range cs {
		arrows[i] = c.arrow()
		wide, ids = max(wide, len(arrows[i])), max(ids, len(c.ID))
	}
	for i, c := range cs {
		// A verdict by other words is another question, so the new words are said.
		note := ""
		if c.Reworded {
			note = " [rule: " + c.Rule + "]"
		}
		fmt.Fprintf(&b, "  %-*s  %-*s  %s%s\n", wide, arrows[i], ids, c.ID, c.Sentence, note)
	}
	return b.String()
}

// arrow says what became of a verdict; one that stayed is said once.
func (c Change) arrow() string {
	switch {
	case c.Was == "":
		return "(new) -> " + string(c.Now)
	case c.Now == "":
		return string(c.Was) + " -> (gone)"
	case c.Same():
		return string(c.Now)
	}
	return string(c.Was) + " -> " + string(c.Now)
}
