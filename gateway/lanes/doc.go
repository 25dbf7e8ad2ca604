// Package lanes decides how many event streams are applied to the index at once.
//
// It holds the pool of lanes and what it counts. It does not hold the streams: every rank of a worker has one
// goroutine that reads, decides and applies (gateway/recovery), and a bounded queue in front of it.
//
// The one idea to know: a lane is a permission. A rank's goroutine takes a turn on whichever lane is free, in
// the order of asking, applies one batch and gives it back. So a rank is on one lane at a time and its events
// stay in order without a queue per lane, a storm on one worker cannot keep the others waiting for more than
// a batch, and the rest of the machine is left to the requests.
package lanes
