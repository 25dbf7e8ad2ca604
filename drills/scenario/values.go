package scenario

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"gopkg.in/yaml.v3"

	"fleetdrill/drills/predicate"
)

// decoder walks the YAML tree and collects problems. It never stops at the first: a value that cannot be
// read becomes its zero value and a problem.
type decoder struct {
	file     string
	problems Problems
	// loadNodes holds the node of each load and phase, in the order of Scenario.Loads; stopOf the stop mark
	// that a load was written with, by id.
	loadNodes []*yaml.Node
	stopOf    map[string]predicate.Mark
}

func (d *decoder) fail(n *yaml.Node, format string, args ...any) {
	d.failAt(n.Line, n.Column, format, args...)
}

func (d *decoder) failAt(line, col int, format string, args ...any) {
	d.problems = append(d.problems, Problem{d.file, max(1, line), max(1, col), fmt.Sprintf(format, args...)})
}

// describe names what stands where something else was expected.
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	if n.Tag == "!!null" {
		return "nothing"
	}
	return strconv.Quote(n.Value)
}

// scalar is the text of a scalar; false, with a problem, for anything else and for nothing.
func (d *decoder) scalar(n *yaml.Node, want string) (string, bool) {
	if n == nil {
		return "", false
	}
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		d.fail(n, "expected %s, not %s", want, describe(n))
		return "", false
	}
	return n.Value, true
}

func (d *decoder) text(n *yaml.Node) string {
	s, _ := d.scalar(n, "text")
	return s
}

// id reads a name that marks and results are built from.
func (d *decoder) id(n *yaml.Node) string {
	s, ok := d.scalar(n, "an id")
	if ok && !validID(s) {
		d.fail(n, "%q is not an id: a letter, then letters, digits and single -", s)
		return ""
	}
	return s
}

// validID reports whether s names marks ID.x that the predicate language reads back.
func validID(s string) bool { return reID.MatchString(s) && len(s) <= 64 }

// wholeOf, numberOf and durationOf read a default of the tables, which a test checks.
func wholeOf(def string) int {
	v, _ := strconv.Atoi(def)
	return v
}

func numberOf(def string) float64 {
	v, _ := strconv.ParseFloat(def, 64)
	return v
}

func durationOf(def string) time.Duration {
	v, _ := time.ParseDuration(def)
	return v
}

// word reads one of a key's words.
func (d *decoder) word(n *yaml.Node, what string, k key) string {
	s := d.text(n)
	switch {
	case slices.Contains(k.value.words, s):
		return s
	case s == "":
	case slices.Contains(k.value.soon, s):
		d.fail(n, "%s %s is not supported yet; supported is %s", what, s, strings.Join(k.value.words, ", "))
	default:
		d.fail(n, "unknown %s %q%s", what, s, suggestAmong(s, slices.Concat(k.value.words, k.value.soon)))
	}
	return k.def
}

// suggestAmong suggests a close word, or lists them all when none is close.
func suggestAmong(word string, all []string) string {
	if s := predicate.Suggest(word, all); s != "" {
		return s
	}
	if len(all) == 1 {
		return ": it is " + all[0]
	}
	return ": it is one of " + strings.Join(all, ", ")
}

// integer reads a whole number in [lo, hi]; def stands for a missing or wrong one.
func (d *decoder) integer(n *yaml.Node, lo, hi, def int) int {
	s, ok := d.scalar(n, "a whole number")
	if !ok {
		return def
	}
	v, err := strconv.Atoi(strings.ReplaceAll(s, "_", ""))
	if err != nil {
		d.fail(n, "expected a whole number, not %q", s)
		return def
	}
	if v < lo || v > hi {
		d.fail(n, "%d is out of range: %d to %d", v, lo, hi)
		return def
	}
	return v
}

func (d *decoder) boolean(n *yaml.Node) bool {
	s, ok := d.scalar(n, "true or false")
	if ok && s != "true" && s != "false" {
		d.fail(n, "expected true or false, not %q", s)
	}
	return s == "true"
}

// number reads a number in [lo, hi]; def stands for a missing or wrong one.
func (d *decoder) number(n *yaml.Node, lo, hi, def float64) float64 {
	s, ok := d.scalar(n, "a number")
	if !ok {
		return def
	}
	v, err := strconv.ParseFloat(s, 64)
	switch {
	case err != nil || !reNumber.MatchString(s):
		d.fail(n, "expected a number, not %q", s)
	case v < lo || v > hi:
		d.fail(n, "%s is out of range: %v to %v", s, lo, hi)
	default:
		return v
	}
	return def
}

// duration reads a duration with its unit, in [lo, hi]; hi is maxDuration when it is 0.
func (d *decoder) duration(n *yaml.Node, lo, hi, def time.Duration) time.Duration {
	if hi == 0 {
		hi = maxDuration
	}
	s, ok := d.scalar(n, "a duration such as 2.5s")
	if !ok {
		return def
	}
	v, err := time.ParseDuration(s)
	switch {
	case err != nil && onlyDigits(s):
		d.fail(n, "the duration %s needs a unit: write %ss or %sms", s, s, s)
	case err != nil:
		d.fail(n, "%q is not a duration: write it as 100ms, 2.5s or 1m30s", s)
	case !reDuration.MatchString(s):
		d.fail(n, "%q is not a duration: write it as 100ms, 2.5s or 1m30s", s)
	case v < lo:
		d.fail(n, "%s is too short: at least %s", s, lo)
	case v > hi:
		d.fail(n, "%s is too long: at most %s", s, hi)
	default:
		return v
	}
	return def
}

// maxDuration bounds every duration of a file; a soak of a day is the longest run there is.
const maxDuration = 48 * time.Hour

func onlyDigits(s string) bool {
	return s != "" && strings.TrimFunc(s, func(r rune) bool { return unicode.IsDigit(r) || r == '.' }) == ""
}

// What scalars with a structure look like; the schema has the same patterns.
var (
	reID       = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(-[A-Za-z0-9_]+)*$`)
	reDuration = regexp.MustCompile(`^\+?([0-9]+(\.[0-9]*)?(ns|us|ms|s|m|h))+$|^0$`)
	reRate     = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?/(s|min)$`)
	reNumber   = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?$`)
	reShare    = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?%?$`)
	reRange    = regexp.MustCompile(`^[0-9]+(\.\.[0-9]+)?$`)
	reWorker   = regexp.MustCompile(`^(gateway|w[0-9]+)$`)
)

// rate reads requests per second, written N/s or N/min.
func (d *decoder) rate(n *yaml.Node) float64 {
	s, ok := d.scalar(n, "a rate such as 24/s")
	if !ok {
		return 0
	}
	num, unit, _ := strings.Cut(s, "/")
	per := map[string]float64{"s": 1, "min": 60}[unit]
	v, err := strconv.ParseFloat(num, 64)
	if err != nil || !reRate.MatchString(s) || v == 0 || v > 1e6 {
		d.fail(n, "%q is not a rate: write it as 24/s or 30/min", s)
		return 0
	}
	return v / per
}

// share reads a share in [0, 1], written as a percentage or a fraction.
func (d *decoder) share(n *yaml.Node) float64 {
	s, ok := d.scalar(n, "a share such as 50%")
	if !ok {
		return 0
	}
	num, percent := strings.CutSuffix(s, "%")
	v, err := strconv.ParseFloat(num, 64)
	if percent {
		v /= 100
	}
	if err != nil || !reShare.MatchString(s) || v > 1 {
		d.fail(n, "%q is not a share: write it as 50%%", s)
		return 0
	}
	return v
}

// intRange reads A..B or one number.
func (d *decoder) intRange(n *yaml.Node) IntRange {
	s, ok := d.scalar(n, "a range such as 256..1024")
	if !ok {
		return IntRange{}
	}
	a, b, two := strings.Cut(s, "..")
	if !two {
		b = a
	}
	lo, err1 := strconv.Atoi(a)
	hi, err2 := strconv.Atoi(b)
	switch {
	case err1 != nil || err2 != nil || !reRange.MatchString(s):
		d.fail(n, "%q is not a range: write it as 256..1024", s)
	case hi < lo || hi > 1<<20:
		d.fail(n, "the range %q must go up, from 0 to at most %d", s, 1<<20)
	default:
		return IntRange{lo, hi}
	}
	return IntRange{}
}

// list calls each with every element of a sequence.
func (d *decoder) list(n *yaml.Node, what string, each func(*yaml.Node)) {
	switch {
	case n == nil:
	case n.Kind != yaml.SequenceNode:
		d.fail(n, "%s must be a list, not %s", what, describe(n))
	case len(n.Content) > maxList:
		d.fail(n, "%s has %d entries, more than %d", what, len(n.Content), maxList)
	default:
		for _, x := range n.Content {
			each(x)
		}
	}
}

// maxList bounds every list of a file.
const maxList = 1000

// texts reads a list of scalars; a lone scalar is a list of one.
func (d *decoder) texts(n *yaml.Node, what string) []string {
	if n != nil && n.Kind == yaml.ScalarNode {
		return []string{d.text(n)}
	}
	var out []string
	d.list(n, what, func(x *yaml.Node) { out = append(out, d.text(x)) })
	return out
}

// predicate parses a condition; what it may refer to is checked later, when all marks are known.
func (d *decoder) predicate(n *yaml.Node) *predicate.Expr {
	s, ok := d.scalar(n, "a condition")
	if !ok {
		return nil
	}
	x, err := predicate.Parse(s)
	if err != nil {
		d.inside(n, err)
		return nil
	}
	return x
}

func (d *decoder) mark(n *yaml.Node) predicate.Mark {
	s, ok := d.scalar(n, "a mark such as death.effective")
	if !ok {
		return predicate.Mark{}
	}
	m, err := predicate.ParseMark(s)
	if err != nil {
		d.inside(n, err)
	}
	return m
}

func (d *decoder) marks(n *yaml.Node) predicate.Range {
	s, ok := d.scalar(n, "a window such as death.effective..settle.end")
	if !ok {
		return predicate.Range{}
	}
	r, err := predicate.ParseRange(s)
	if err != nil {
		d.inside(n, err)
	}
	return r
}

// inside reports a mistake within a scalar at its own column. In a folded or literal scalar the offset
// cannot be mapped, so the scalar's start is given.
func (d *decoder) inside(n *yaml.Node, err error) {
	col := n.Column
	if e, ok := err.(*predicate.Error); ok {
		col = columnIn(n, e.Col)
	}
	d.failAt(n.Line, col, "%s", err)
}

// columnIn is the column of a byte inside a scalar: quotes come before the text, a block scalar starts on
// another line.
func columnIn(n *yaml.Node, offset int) int {
	switch n.Style {
	case yaml.LiteralStyle, yaml.FoldedStyle:
		return n.Column
	case yaml.DoubleQuotedStyle, yaml.SingleQuotedStyle:
		offset++
	}
	return n.Column + offset
}
