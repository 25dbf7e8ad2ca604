// Package policy decides where a request goes: pure functions from a snapshot of candidates to one of
// them.
//
// No clock, lock or I/O lives here; randomness comes from a generator that the caller seeds. Who may be
// used at all (liveness, breaker) is decided before, in fleet; what each candidate caches comes from
// the index. The one idea to know: cache_aware first asks who holds the most of the prompt, then
// whether that worker is far busier than the others, and everywhere a choice is left, expected waiting
// time in seconds decides, with ties drawn uniformly: deterministic ties starve most of a cold fleet.
//
// Warmup stands in front of it: caches alone would never choose an emptied worker again, and waiting times
// alone would send it everything.
package policy
