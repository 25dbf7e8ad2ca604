// Package contract holds the JSON types that fleetdrill's processes exchange: ready files, the truth
// API of a mock worker, the routing state and dump of a gateway.
//
// It contains no logic beyond encoding. mockworker and gateway never import each other; both, and the
// drill lab that watches them, import this. testdata holds one golden sample of each document: a key
// may be added, never renamed.
//
// Times named mono_ns are CLOCK_MONOTONIC nanoseconds (internal/clock), comparable between processes
// of one machine. 64-bit hashes and digests travel as decimal strings (U64), since many JSON readers
// keep only 53 bits of a number.
package contract
