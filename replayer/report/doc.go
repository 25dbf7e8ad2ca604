// Package report draws what a replay came to: one HTML file with the table of its runs and pictures of rate,
// time to first token, hits and balance over time, and of how latencies are distributed.
//
// It decides nothing: every figure comes from package result. The one idea to know: a picture is laid out in
// plain Go, as numbers, and the template only prints it, so that it can be tested; the page needs no network
// and no script.
package report
