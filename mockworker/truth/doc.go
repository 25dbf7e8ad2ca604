// Package truth keeps what a mock worker can say about itself with certainty: the announced set (the
// fold of every batch it sent), its digest after each sequence number, a journal that takes the set back
// to an earlier sequence number, and a log of the requests its engine served.
//
// The one idea to know: the announced set is folded from the payload bytes that go out, decoded here
// again, never from the block pool. A wrong encoder or a fault that alters a batch therefore shows up as
// a difference between announced and resident, which is what the set is for.
//
// Batches are folded in runs: when somebody looks, or when enough of them wait. No look sees the difference.
//
// A fault that keeps a batch from the subscribers is told by where the batch still is. Announced is what
// a subscriber holds that got everything there was to get: a batch that is only in the replay buffer
// counts, one that is nowhere does not, and after a restart of the publisher the set starts empty.
//
// The resident set is not here: it belongs to the engine. The HTTP side is mockworker/admin.
package truth
