// Package corpus makes and stores what an index bench replays: requests to be looked up and the events of
// the engines that served them, each with a deadline.
//
// It holds the corpus and its checks, the offline engine that makes events out of a trace, the cache file
// that processes map into memory, and the public exchange format SMGMCK01. It does not hold clocks or
// indexes: replaying is the business of package drive.
//
// The one idea to know: a corpus is a few long arrays of words and a list of operations that point into
// them. It has no pointers, so that a process maps it from a file, its garbage collector does not see it,
// and equal parameters give equal bytes.
package corpus
