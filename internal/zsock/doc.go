// Package zsock is the fleet's ZeroMQ: PUB, SUB, ROUTER and DEALER sockets that behave on the wire like
// libzmq's, and that go on behaving when a peer is stopped, partitioned, hostile or gone.
//
// The greeting, the NULL mechanism, the READY exchange and the framing of outgoing messages are those of
// github.com/go-zeromq/zmq4, used one level below its sockets: zmq4.Open over a net.Conn of ours. Everything
// above a connection is here: who is connected, what waits for whom, what is dropped, when a peer counts as
// gone, when to dial again.
//
// The one idea: a connection (link) is two goroutines and one outbox. The reader owns everything that
// arrives, the writer owns every byte that leaves, and whoever wants to send only ever appends to the outbox,
// which takes a mutex for nanoseconds and never waits for a network. So one stuck peer costs its own outbox
// and nothing else: no other peer's message, no accept, no Send.
//
// Not here: what a message means (gateway/recovery, mockworker/publish), security mechanisms other than
// NULL, and any ZeroMQ pattern the fleet does not use.
//
// Endpoints are "tcp://HOST:PORT" and "ipc://PATH". A "*" as host binds 127.0.0.1, not every interface as in
// libzmq: a fleet is one machine, and a test bench should not be reachable from the outside by default. A
// port of 0 or "*" is chosen by the system; Bind returns the endpoint that a peer can dial.
package zsock
