// Package bench measures the gateway's index and its decisions, and says what the figures mean: beside
// published ones, beside other indexes in the same run, and beside itself.
//
// It holds the method: which trials make a figure, brackets, medians and their confidence, controls, what is
// thrown away and why; the benches of churn, memory, decisions and the shape of another project's bench; and
// the tables and pictures. The corpus is in package corpus, one trial of it in package drive.
//
// The one idea to know: a figure comes from fresh processes. The command that measures runs itself again for
// every trial, hands it a Task on standard input and reads the result from its standard output, so that no
// trial inherits a heap, and everything here that decides can be tested with made-up results.
package bench
