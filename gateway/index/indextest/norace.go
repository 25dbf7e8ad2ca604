//go:build !race

package indextest

// RaceEnabled shortens what runs in one goroutine: the race detector has nothing to find there.
const RaceEnabled = false
