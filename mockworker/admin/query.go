package admin

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// query reads the parameters of a request and keeps the first complaint.
type query struct {
	values url.Values
	err    error
}

// newQuery refuses parameters that are not known: a misspelt one would silently mean its default.
func newQuery(values url.Values, known ...string) *query {
	q := &query{values: values}
	for name := range values {
		if !slices.Contains(known, name) {
			q.err = fmt.Errorf("parameter %q is not known here: known are %s", name, strings.Join(known, ", "))
		}
	}
	return q
}

// integer reads a parameter from least to most; absent gives def.
func (q *query) integer(name string, def, least, most int64) int64 {
	if q.err != nil || !q.values.Has(name) {
		return def
	}
	v, err := strconv.ParseInt(q.values.Get(name), 10, 64)
	if err != nil || v < least || v > most {
		q.err = fmt.Errorf("parameter %s is %q, must be a whole number from %d to %d", name, q.values.Get(name), least, most)
		return def
	}
	return v
}

// oneOf reads a parameter out of a list, the first being the default.
func (q *query) oneOf(name string, known ...string) string {
	v := known[0]
	if q.values.Has(name) {
		v = q.values.Get(name)
	}
	if q.err == nil && !slices.Contains(known, v) {
		q.err = fmt.Errorf("parameter %s is %q, must be one of %s", name, v, strings.Join(known, ", "))
	}
	return v
}
