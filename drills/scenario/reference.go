package scenario

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"fleetdrill/drills/predicate"
)

// Reference is the reference of the language in Markdown: its keys, faults and series, printed from the
// tables that the parser reads by. docs/drills.md holds it.
func Reference() string {
	var b strings.Builder
	b.WriteString("### Keys\n\nA key in bold must be there.\n")
	for _, s := range shapes() {
		s.reference(&b)
	}
	faultsReference(&b)
	seriesReference(&b)
	return b.String()
}

// reference is a table of a mapping's keys.
func (s *shape) reference(b *strings.Builder) {
	fmt.Fprintf(b, "\n**%s**: %s\n\n| key | value | default | means |\n|---|---|---|---|\n", s.name, s.doc)
	for _, k := range s.keys {
		if k.soon {
			continue
		}
		name := "`" + k.name + "`"
		if k.required {
			name = "**" + name + "**"
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", name, k.value.said(), code(k.def), k.doc)
	}
	if len(s.needs) > 0 {
		fmt.Fprintf(b, "\nMust be there: %s", codes(s.needs))
		if unless := s.replacements(); len(unless) > 0 {
			fmt.Fprintf(b, ", unless %s is", codes(unless))
		}
		b.WriteString(".\n")
	}
	if len(s.forms) > 0 {
		forms := make([]string, len(s.forms))
		for i, f := range s.forms {
			forms[i] = strings.ReplaceAll(codes(f), ", ", " with ")
		}
		fmt.Fprintf(b, "\nExactly one of: %s.\n", strings.Join(forms, "; "))
	}
	if later := s.later(); len(later) > 0 {
		fmt.Fprintf(b, "\nNot supported yet: %s.\n", codes(later))
	}
}

func faultsReference(b *strings.Builder) {
	b.WriteString("\n### Faults\n\nEvery fault has `id`, `target`, `at` and `confirm: {within: ...}`, and gives the marks `ID.inject` and `ID.effective`.\n")
	b.WriteString("\n| kind | does | parameters | ends |\n|---|---|---|---|\n")
	var later []string
	for _, k := range kinds {
		if !k.supported {
			later = append(later, k.name)
			continue
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", k.name, k.doc, k.paramsReference(), k.heals.said())
	}
	fmt.Fprintf(b, "\nNot supported yet: %s.\n", codes(later))
}

// paramsReference lists the parameters of a kind with their words and defaults.
func (k kind) paramsReference() string {
	var out []string
	for _, p := range k.params {
		if p.soon {
			continue
		}
		text := fmt.Sprintf("`%s`: %s (%s", p.name, p.doc, p.value.said())
		if p.def != "" {
			text += "; default " + code(p.def)
		}
		out = append(out, text+")")
	}
	return strings.Join(out, "; ")
}

// said is how a kind of fault ends, and by which marks one knows.
func (h healing) said() string {
	switch h {
	case healNever:
		return "never"
	case healItself:
		return "by itself; `ID.healed` is the first batch after it, as the lab received it, or the instant at which the lab saw what it left"
	}
	return "`for` or `heal`; marks `ID.heal` and `ID.healed`"
}

func seriesReference(b *strings.Builder) {
	b.WriteString("\n### Series\n\nA gauge has a value at every sample; a counter means its increase, in a window or since a mark; a stream is reduced.\n")
	b.WriteString("\n| name | per | kind | unit | source | means |\n|---|---|---|---|---|---|\n")
	for _, s := range predicate.Catalogue() {
		kind := string(s.Kind)
		switch {
		case s.Bool:
			kind = "condition"
		case s.Text:
			kind = "word"
		}
		means := s.Definition
		if len(s.Words) > 0 {
			means += ": one of " + codes(s.Words)
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s | %s |\n", s.Name, s.Per, kind, s.Unit, s.Source, means)
	}
}

// said is what may stand as a value, for people.
func (v value) said() string {
	switch v.form {
	case formTexts:
		return "list of words"
	case formID:
		return "id"
	case formVersion:
		return code(version)
	case formWhole:
		return fmt.Sprintf("%d to %d", v.min, v.max)
	case formBool:
		return "`true` or `false`"
	case formDuration:
		switch {
		case v.most > 0:
			return "duration, up to " + short(v.most)
		case v.least > 0:
			return fmt.Sprintf("duration, at least %s", v.least)
		}
		return "duration"
	case formNumber:
		return fmt.Sprintf("%v to %v", v.low, v.high)
	case formPart:
		return "share above 0, `50%`"
	case formRate:
		return "rate, `24/s`"
	case formShare:
		return "share, `50%`"
	case formRange:
		return "range, `256..1024`"
	case formSeed:
		return code(runSeed) + " or a number"
	case formMark:
		return "mark"
	case formMarks:
		return "mark`..`mark"
	case formPredicate:
		return "condition"
	case formPredicates:
		return "list of conditions"
	case formWord, formWords:
		return codes(v.words)
	case formNames, formWordList:
		return codes(v.words) + ", or a list"
	case formWorker:
		return "`w1` to `wN`"
	case formMapping:
		return v.of.name
	case formList:
		return "list of " + v.of.name
	case formSteps:
		return "list of fault and wait"
	case formEither:
		return value{form: v.alt}.said() + ", or " + v.of.name
	}
	return "text"
}

// short is a whole number of hours as people write it.
func short(d time.Duration) string { return strconv.Itoa(int(d/time.Hour)) + "h" }

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}

func codes(ss []string) string {
	out := make([]string, len(ss))
	for i, s := range ss {
		out[i] = code(s)
	}
	return strings.Join(out, ", ")
}
