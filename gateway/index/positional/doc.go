// Package positional is the index of entries by (position, prefix): a lookup jumps ahead along the chain and
// looks closer only where holders drop out. It is the baseline that the chain index replaced, made exact.
//
// It holds the entries, each holder's names, and the jump search with the check that makes it exact. It is not
// meant to be fast under many writers.
//
// The one idea to know: a jump over 32 blocks is right for a holder that has no block without its parent.
// The index counts, per holder, the blocks whose parent is missing; holders with such orphans are walked
// block by block.
package positional
