// Package linkproxy is a TCP proxy that stands in front of one port of a fleet: it injects link faults
// and keeps the log of what reached the port.
//
// What lives here: forwarding (link.go, pump.go), the faults hold and delay (gate.go, pump.go), and the
// request log that drills count attempts with (framing.go, dialog.go, ledger.go). What does not: which
// ports get a proxy (internal/lab) and when a fault happens (drills).
//
// The one idea to know: bytes are forwarded untouched whatever the log makes of them. A pure incremental
// parser follows the HTTP/1 requests and responses of a keep-alive connection only as far as their ends;
// what it cannot follow makes that one connection opaque, which is counted, and changes nothing for the
// two sides. Ends are carried over as they come: a half-close as a half-close, a reset as a reset, so
// that the clients of a killed engine see what they would see without the proxy. One thing differs: a
// refused upstream cannot be refused to a client that is already accepted, it is reset as soon as its request
// is in the log.
package linkproxy
