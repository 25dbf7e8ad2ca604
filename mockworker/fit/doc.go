// Package fit finds a timing profile for a recorded run of a real engine, and says how well the mock engine
// reproduces the run with it.
//
// What is fitted is the mock engine itself: every trial replays all arrivals of the run through the engine
// core in simulated time, with the run's own pool, sequences and token budget, and compares what came out.
// Scoring fewer requests than are simulated shows how well a profile predicts what it has not seen.
//
// The one idea to know: the twelve figures (mean and three percentiles of TTFT, TPOT and latency) are what a
// fit is judged by, and not all that it looks at. Twelve numbers can be met by accident; so the objective
// also counts every scored request on its own.
//
// Not here: profiles and step time (mockworker/engine), fleets and traces (replayer/sim), flags (internal/cli).
package fit
