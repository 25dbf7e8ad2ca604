// Package proxy is the request path: read, tokenize, place, stream, retry, finish.
//
// The one idea to know: until the first byte has reached the client a request can be moved to another
// worker and nobody notices; after it, the only honest end besides a complete answer is a broken one. So
// the head of an answer is written together with its first byte, and a stream that an engine does not
// finish ends in an error event and a cut connection, never in a clean end.
//
// Each attempt holds one guard of the fleet, given back exactly once whatever the end is. What may be
// retried is decided in decide.go and budget.go, which are pure. Bytes pass as they are.
package proxy
