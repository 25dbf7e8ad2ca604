package leaks

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is what goroutines are given to end: only what never ends takes so long.
const patience = time.Minute

// Main is a package's TestMain: it runs the tests and, when they pass, looks for what they left running.
func Main(m *testing.M) {
	code := m.Run()
	if code == 0 {
		if err := find(patience); err != nil {
			fmt.Fprintf(os.Stderr, "the tests passed and left goroutines behind: %v\n", err)
			code = 1
		}
	}
	os.Exit(code)
}

// None fails a test that leaves goroutines running; it is to be deferred. No test may run beside it.
func None(t testing.TB) {
	t.Helper()
	if err := find(patience); err != nil {
		t.Error(err)
	}
}

// find waits until no goroutine is left, and says which are when that takes longer than wait.
func find(wait time.Duration) error {
	for end := time.Now().Add(wait); ; {
		err := goleak.Find()
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}
