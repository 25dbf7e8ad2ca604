// Package late holds back the removals an engine announces, so that they go out some steps or some time
// after the blocks are gone. Real vLLM was seen to do so under load, and an index then overstates a small
// cache.
//
// The one idea to know: only removals wait, and no block is ever told out of order. What is held leaves in
// the order it came, and a removal never stands behind what came after it for the same block: a store of
// the block, or a clear of the whole cache, takes the removals in front of it along, due or not. So whoever
// has everything knows too much for a while, and never too little.
//
// It is pure: time is the caller's, and nothing is sent here. mockworker/publish uses it in a live worker,
// the simulator of package replayer may as well.
package late
