// Package workerbench measures an engine simulator from the outside: what it costs to start, to idle, to
// answer and to stream, what it publishes, and whether its counters tell the truth after an overload.
//
// The subject is a process of this binary that the bench starts; a second one, any OpenAI-compatible
// simulator that runs already, can be measured beside it with the same requests, so that a ratio comes from
// one run on one machine. Nothing here knows mock workers beyond their command line, their HTTP API and
// their event stream.
//
// The one idea to know: generator and subject share the machine's cores, so the generator must be cheap.
// Requests are bytes written once, connections are plain and kept, and nothing is parsed that no figure
// needs. CPU is read from /proc for the subject alone.
package workerbench
