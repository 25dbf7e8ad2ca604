// Package radix is the core of a mock engine that behaves as SGLang does: a radix tree of pages for the
// prefix cache, and a scheduler that prefills before it decodes. It implements engine.Core, and is pure in
// the same way: no goroutine, clock, I/O or global randomness, and not safe for concurrent use.
//
// The one idea to know: a page belongs either to the tree, which announces it once, or to the one request
// that computes it, which announces nothing. It passes to the tree when a prompt chunk is computed and when
// a request ends; a page that the tree has already is given back instead. So there is never a second copy,
// stores and removals balance, and what was decoded appears only at the request's end.
//
// A page's hash names everything before it, so a node is found by the hash of its first page and two
// prompts are compared hash by hash. Adapters have trees of their own with the hashes of the base model:
// their pages collide, as they do in the engine.
//
// With a host tier (host.go) a node has a copy on the device, in the host or in both, and each tier's stores and
// removals balance by themselves.
//
// Bytes on the wire, sockets and HTTP live elsewhere.
package radix
