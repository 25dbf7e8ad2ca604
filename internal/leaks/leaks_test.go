package leaks

import (
	"strings"
	"testing"
)

// A goroutine that stays is told of by name, one that ends is not.
func TestFind(t *testing.T) {
	end := make(chan struct{})
	go stay(end)
	if err := find(0); err == nil || !strings.Contains(err.Error(), "leaks.stay") {
		t.Errorf("with a goroutine that stays: %v", err)
	}
	close(end)
	if err := find(patience); err != nil {
		t.Errorf("once it has ended: %v", err)
	}
}

func stay(end chan struct{}) { <-end }
