//go:build race

package chain

// raceEnabled shortens what runs in one goroutine.
const raceEnabled = true
