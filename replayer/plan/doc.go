// Package plan turns the rows of a trace into the requests of a replay: which rows are asked, at what
// offsets, with which prompt and how many tokens at most.
//
// It is pure, and shared by live and simulated replays, so both send the same requests at the same instants
// for a seed. The one idea: a plan holds block ids, not tokens. A prompt is made when it is needed, since
// the tokens of a long trace would fill gigabytes.
package plan
