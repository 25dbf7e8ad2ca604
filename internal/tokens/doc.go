// Package tokens holds what engines and gateways must agree on about token ids: a reversible stand-in
// tokenizer, content hashes of blocks, namespaces, chains, and the digest of a set of engine hashes.
//
// The tokenizer stands in for a model's own: it is exact about counts and round trips, not about how a
// real vocabulary would split text. Everything here is pure and allocation is the caller's choice.
package tokens
