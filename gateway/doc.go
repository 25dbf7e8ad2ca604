// Package gateway is a KV-aware gateway: OpenAI API in front, engines behind.
//
// This package only puts the parts together: flags into a Config, and Run, which opens the ports,
// starts the parts in order and ends them in reverse. What decides lives below: fleet (which worker may
// be used), policy (which one should be), proxy (the request path), recovery and index (what each
// worker caches), state (what an operator sees).
//
// The one idea to know: every decision is taken by a pure core under one lock (fleet), from values that
// goroutines bring to it, and leaves it as data. So what the routing state shows is what the next
// request will meet.
package gateway
