// Package synth makes the requests of a drill's load: when each leaves, how long it is, which shared
// head it starts with, and its very bytes.
//
// The one idea: everything follows from the seed through named sub-streams, one for instants, one for
// input lengths, one for output lengths, one for heads, one for fresh prefixes, and one per prompt for
// its tokens. The same spec gives the same bytes on every machine, and changing one property of a load,
// say its output range, leaves the others as they were. Sending is the business of replayer/load; what
// the prompts do to caches is the business of the engines.
package synth
