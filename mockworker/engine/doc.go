// Package engine is the core of the mock engine: a continuous-batching scheduler over a paged block pool
// with prefix caching, behaving as vLLM V1 does.
//
// It is pure. Step(now) schedules one model pass that begins at now and says when its results exist; the
// caller sleeps or jumps until then, delivers the outputs and publishes the events. There is no
// goroutine, clock, I/O or global randomness here, and an Engine is not safe for concurrent use: the
// caller holds a lock around every call.
//
// The one idea to know: blocks enter the prefix cache, and stored events are queued, when a pass is
// scheduled, before its tokens are computed. Requests that end with a pass give their blocks back at the
// beginning of the next Step.
//
// Layers may come in several cache groups (groups.go), and what the device evicts may go to a host tier
// (host.go). Both are switches of Config; without them there is one group of full attention and no host.
//
// Bytes on the wire, sockets and HTTP live elsewhere. Requests end only by reaching their token limit:
// the mock never samples an end-of-sequence token.
package engine
