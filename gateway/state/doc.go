// Package state is what an operator sees and sets: routing state, dump, transitions, registry,
// handicaps and profiles, on the admin port.
//
// Nothing is decided here; every answer is built from snapshots of the fleet, cheap enough to be asked
// for ten times a second. The one idea to know: the routing state is the contract by which drills judge
// a gateway, so its keys (internal/contract) are never renamed.
package state
