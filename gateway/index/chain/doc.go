// Package chain is the index that the gateway uses: chains of blocks stored run-length compressed, read
// without locks.
//
// It holds the runs, the words they are made of, each holder's map from engine hash to place, the writers
// and the lookup. What an index means is in package index; why this one looks as it does, with a drawing
// and the bytes of each part, is in docs/index.md.
//
// The one idea to know: a run is never split and a place never moves. A holder has a whole run (one bit),
// its first blocks (one entry with a cutoff), or, after a middle part was evicted, any of its blocks (the
// same entry with a bitmap that only writers read). So an engine hash can name (run, offset) for as long
// as its block is held, and a reader needs one bit or one word per holder and run.
package chain
