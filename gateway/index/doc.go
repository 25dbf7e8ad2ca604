// Package index answers one question: of a request's chain of blocks, how many leading blocks does each
// holder have?
//
// It holds the Index interface with its words (Holder, Membership, Scores) and Residency, which counts
// physical copies above an Index and keeps the digest that is compared with the engine's own. It does
// not hold an implementation (see the packages below it), wire formats or sequence numbers.
//
// The one idea to know: an index is keyed by content, which all holders share, and told about changes by
// engine hash, which only its holder understands. So every holder has a map from engine hash to place,
// and a lookup never sees an engine hash.
package index
