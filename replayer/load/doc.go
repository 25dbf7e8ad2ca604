// Package load sends requests on an open-loop schedule and records what a client saw.
//
// Instants are computed before the load starts and latencies count from the scheduled instant, so a
// gateway that slows the client down cannot flatter its own figures. It knows nothing of engines or
// gateways beyond the OpenAI API and the routing headers.
package load
