// Package judge turns a record and the expectations of a scenario into verdicts.
//
// It reads nothing but the record, so a stored run can be judged again, and it knows no YAML and no
// process. The one idea to know: what was measured is an interval, printed with every value; where the
// interval does not decide, the verdict says so (borderline, unknown, invalid) instead of choosing.
package judge
