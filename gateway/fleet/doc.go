// Package fleet knows the workers: who is registered, who may be placed on, what each is doing.
//
// Core is pure. Everything it knows was told to it with a time: ping results, load polls, connections,
// placements, bytes, event batches. Everything it decides comes out as Actions: ping now, end this
// request, this worker is dead. Fleet is the shell: one loop that ticks the core, short goroutines that
// ping and poll, one HTTP transport per worker that counts its connections.
//
// The one idea to know: a worker is judged by two kinds of contact. Request contact is any answer or
// byte from the engine's request port; only its absence makes a worker dead or partitioned, and only its
// return lifts that. Progress is a byte of a stream, a new event batch or a moved step counter; only its
// absence while work is owed makes a worker wedged, and only its return lifts that. A health answer is
// contact, never progress.
//
// Not here: which routable worker is best (gateway/policy), what it caches (gateway/recovery and index).
package fleet
