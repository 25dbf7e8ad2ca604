// Package supervise owns the processes that the lab starts and the record of how to clean up after it.
//
// What lives here: the Supervisor (starts children, ends them, waits for them), process identity and
// signals that cannot hit a reused pid, the write-ahead cleanup Journal, and the watchdog that runs the
// journal when the lab is gone without having cleaned up. What does not: which processes make a fleet
// (internal/lab), and faults (drills).
//
// The one idea to know: nothing started here may outlive the lab, however the lab ends. Three nets hold
// that, each for what the one before cannot catch. Close ends every child of a lab that ends in order.
// Pdeathsig makes the kernel kill the direct children of a lab that dies. The watchdog, a process in a
// session of its own, sees its pipe close and undoes what the journal still lists: process groups with
// grandchildren, processes left stopped, files.
package supervise
