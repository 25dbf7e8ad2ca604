// Package predicate is the rule language of drills: it parses predicates and marks, checks them against
// the series catalogue, and evaluates them over a record, live or afterwards.
//
// It knows nothing of YAML, operators or verdicts: scenario reads the file, judge applies `after`, `over`
// and their windows. The one idea to know: a predicate is never just true or false. It may be unknown
// (a series was not sampled, a mark has not come, too few requests), and a comparison carries its margin,
// the signed distance to the bound. Numbers are intervals, because what a sample says was true somewhere
// between its two instants.
package predicate
