// Package recordtest writes records as short scripts, for tests that tell a story about a run.
//
// Only tests import it. Instants are seconds on the run's clock; a sample is sent at its instant and
// received 2 ms later.
package recordtest
