// Package drive replays a corpus into an index, open loop, and measures what came of it: one trial.
//
// It holds the schedule of a trial, the issuer with its inline lookups, the event lanes, the statistics of
// one trial and what else the machine did meanwhile. Which trials make a figure is the business of package
// bench; a trial is a process of its own, so that no trial inherits another's heap.
//
// The one idea to know: nobody waits for anybody. Every operation has an absolute deadline, the issuer
// looks up and hands out at it whatever the lanes have finished, and the time of a trial ends with the last
// completion. So an index that falls behind shows as a lower achieved rate, not as a slower generator.
package drive
