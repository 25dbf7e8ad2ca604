// Package faults is what is broken on purpose in one worker: which faults are armed, which act, and what
// they did to whom.
//
// The one idea to know: nothing is broken here. A Set is one value that the step loop, the publisher and
// the request observer ask at the moment that matters (may this step begin, does this batch go out), each
// with its own reading of the clock, and the answer is noted down as it is given. So "acted" never means
// more than what really happened, and a fault that nobody has asked about yet is still armed.
//
// Kinds are apart by where they act: http.go the HTTP port, wire.go the event stream and its replay,
// machine.go the engine and the process, set.go all others.
//
// The HTTP side is mockworker/admin; what a frozen loop or a dropped batch then means is in
// mockworker/loop and mockworker/publish.
package faults
