package trace

import (
	"fmt"
	"strconv"
	"strings"
)

// Rows selects rows by number: Count rows from First on. A Count of 0 is all the rest, so the zero value
// selects every row.
type Rows struct {
	First, Count int
}

// ParseRows reads "A-B", both inclusive and counted from 0, "A-" (to the end) or "A" (one row). The empty
// string selects every row.
func ParseRows(s string) (Rows, error) {
	if s == "" {
		return Rows{}, nil
	}
	from, to, isRange := strings.Cut(s, "-")
	first, err := strconv.ParseUint(from, 10, 31)
	if err != nil {
		return Rows{}, fmt.Errorf("rows %q: want A-B, both inclusive and from 0", s)
	}
	if isRange && to == "" {
		return Rows{First: int(first)}, nil
	}
	last := first
	if isRange {
		last, err = strconv.ParseUint(to, 10, 31)
	}
	if err != nil || last < first {
		return Rows{}, fmt.Errorf("rows %q: want A-B, both inclusive and from 0, A no later than B", s)
	}
	return Rows{First: int(first), Count: int(last-first) + 1}, nil
}

// String is the selection as ParseRows reads it.
func (r Rows) String() string {
	switch {
	case r == Rows{}:
		return ""
	case r.Count == 0:
		return fmt.Sprintf("%d-", r.First)
	}
	return fmt.Sprintf("%d-%d", r.First, r.First+r.Count-1)
}

// past says that row n and all after it are behind the selection.
func (r Rows) past(n int) bool { return r.Count > 0 && n >= r.First+r.Count }
