//go:build !linux

package chain

import "unsafe"

// huge does nothing here: see huge_linux.go.
func huge(unsafe.Pointer, uintptr) {}
