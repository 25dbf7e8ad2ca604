// Package indextest holds what every index must pass: random histories of events, compared after every
// event with the reference of package oracle. Only tests import it.
package indextest
