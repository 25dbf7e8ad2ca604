package deadport

import (
	"errors"
	"net"
	"syscall"
	"testing"
)

// A dead port refuses, and nobody else gets it.
func TestNew(t *testing.T) {
	addr := New(t)
	c, err := net.Dial("tcp", addr)
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dialling: %v, %v", c, err)
	}
	l, err := net.Listen("tcp", addr)
	if !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("listening: %v, %v", l, err)
	}
	if again := New(t); again == addr {
		t.Errorf("two of one address, %s", addr)
	}
}
