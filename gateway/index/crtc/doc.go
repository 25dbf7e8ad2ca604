// Package crtc is a compressed concurrent radix tree: the comparison row of the published index tables,
// written in Go from their description. It is here to be measured against, and selectable so that anyone can.
//
// It holds the edge-compressed nodes, their coverage, each holder's names and the lookup. What an index means is
// in package index. Nothing here was made exact: see below.
//
// The one idea to know: of an edge, a holder has all blocks (one bit) or its first ones (a cutoff), and nothing
// else can be said. A removal in the middle of an edge therefore gives up what is behind it, and that comes back
// only when it is stored again: after a hole the score is too low, never too high. The names stay, so counts,
// memberships and digests are exact. Tests count how often the score is too low and keep it that way.
//
// Where it differs from the description, it is better: a name knows its absolute position, which no split
// changes, so an edge needs no second index from engine hash to offset, and engines may name equal blocks differently.
package crtc
