// Package deadport gives tests an address where nobody listens, now or later. The port of a listener that was
// closed is none: the next test on the machine may be given it.
package deadport

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// New is a host and port that refuses connections until the test ends: its socket is bound and does not listen.
func New(t testing.TB) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("making a socket: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Close(fd); err != nil {
			t.Errorf("closing the socket of a dead port: %v", err)
		}
	})
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatalf("binding a socket: %v", err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatalf("reading the port of a socket: %v", err)
	}
	return fmt.Sprintf("127.0.0.1:%d", name.(*unix.SockaddrInet4).Port)
}
