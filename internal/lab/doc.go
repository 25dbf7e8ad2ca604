// Package lab launches fleets: mock workers and a gateway as child processes of this binary, each engine
// port behind a link proxy, and the clients that read their truth and routing state.
//
// It knows how to start, find and end processes. What is done to them, and what that means, is decided
// by its callers (drills, `fleetdrill up`).
package lab
