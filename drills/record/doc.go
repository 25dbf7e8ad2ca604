// Package record is the data model of a run: marks, samples, requests, link requests, faults and gates,
// and their files in a run folder.
//
// It observes nothing and judges nothing. The runner fills a Record, the judge reads it; because the
// judge reads nothing else, a stored run can be judged again.
package record
