package index_test

import (
	"sync"
	"testing"

	"fleetdrill/gateway/index"
)

// Whoever asks for the record of a holder gets the same one, until it is forgotten; asking whether one is known makes
// none.
func TestHolders(t *testing.T) {
	var s index.Holders[int]
	if s.Known(3) != nil || len(s.All()) != 0 {
		t.Fatal("the zero value knows a holder")
	}
	s.Forget(3)
	records := make([]*int, 8)
	var all sync.WaitGroup
	for i := range records {
		all.Go(func() { records[i] = s.Of(index.Holder(3 + i%2)) })
	}
	all.Wait()
	for i, r := range records {
		if r == nil || r != s.Known(index.Holder(3+i%2)) || r != records[i%2] {
			t.Fatalf("asker %d has another record", i)
		}
	}
	*records[0] = 7
	s.Forget(3)
	if s.Known(3) != nil || s.Known(4) != records[1] || len(s.All()) != 5 {
		t.Fatalf("with 3 forgotten: %v", s.All())
	}
	if again := s.Of(3); again == records[0] || *again != 0 {
		t.Fatal("a new holder has an old one's record")
	}
}
