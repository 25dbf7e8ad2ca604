// Package publish is an engine's KV-event publisher: the PUB socket with its sequence numbers and the
// replay ROUTER with its buffer, as vLLM's ZmqEventPublisher has them.
//
// The one idea to know: a batch is encoded once, by the step loop, and from then on it is the same bytes
// everywhere: folded into the announced set, published, and replayed. One goroutine does these three in
// order, so whoever has received batch n finds it in the fold and in the replay.
//
// It is truthful: nothing is lost or changed here unless ReplayHWM asks for the loss real engines have, or a
// fault for something worse. Encoding is mockworker/wire, sockets are internal/zsock, what is broken is
// mockworker/faults, how a batch then looks mockworker/twist.
package publish
