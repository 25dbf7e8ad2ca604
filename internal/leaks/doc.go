// Package leaks fails tests whose goroutines outlive them. It is goleak with patience: a goroutine that was
// told to end needs a processor to do so, and on a busy machine gets it later than goleak waits, which is for
// less than half a second.
package leaks
