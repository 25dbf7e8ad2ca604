//go:build !amd64

package chain

// prefetchSlots does nothing here: without the instruction, a probe waits for its own loads.
func prefetchSlots(*slot, int, *uint64, int) {}

// prefetchWord does nothing either.
func prefetchWord(*uint64) {}
