// Package load sends requests on an open-loop schedule and records what a client saw.
//
// The one idea: instants are computed before the load starts and latencies count from the scheduled
// instant, so neither a gateway that slows the client down nor a generator that falls behind can flatter
// a figure. What was late, refused, cut or hung up on keeps its record, and Summarize says whether the
// generator kept its schedule well enough for the figures to mean anything.
//
// One goroutine prepares requests ahead of time, one hands them over at their instants, and each open
// request has one of its own; Run.Wait outlasts them all. The package knows nothing of engines or
// gateways beyond the OpenAI API, server-sent events and the routing headers. What to send is the
// business of a Source: drills/synth for drills, a trace for replays.
package load
