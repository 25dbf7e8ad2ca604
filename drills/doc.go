// Package drills runs drills: it starts a fleet, puts load on it, breaks something on purpose, samples
// routing state every 100 ms and leaves a run folder with a verdict.
//
// The room is split along the data's way: scenario (the language) -> plan -> faults and samples (this
// package) -> record (what was observed) -> judge (verdicts) -> report. This package observes and acts;
// it never decides whether an expectation holds, and the judge never touches a process.
//
// It imports neither mockworker nor gateway: they are child processes, started through internal/lab and
// read through internal/contract.
package drills
