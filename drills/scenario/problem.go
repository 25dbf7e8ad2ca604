package scenario

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one mistake in a scenario file. Line and Col count from 1.
type Problem struct {
	File string
	Line int
	Col  int
	Msg  string
}

// Error is file:line:col: message, the form that editors and CI systems make a link of.
func (p Problem) Error() string { return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Col, p.Msg) }

// Problems is every mistake of a file, in its order. It is the error that Parse and ReadFile return for a file
// that could be read.
type Problems []Problem

// Error has one line per problem.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// sorted orders problems by position and drops repetitions.
func (ps Problems) sorted() Problems {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
	})
	return slices.Compact(ps)
}
