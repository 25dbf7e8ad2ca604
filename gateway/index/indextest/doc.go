// Package indextest holds what every index must pass: random histories of events, compared after every
// event with the reference of package oracle, and the streams of mock engines, whose own caches say what a
// lookup must find. Only tests import it.
package indextest
