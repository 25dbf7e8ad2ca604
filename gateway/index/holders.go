package index

import (
	"slices"
	"sync"
	"sync/atomic"
)

// Holders is an implementation's records of its holders, found without a lock. The zero value knows none.
type Holders[T any] struct {
	// list is indexed by id, nil for an id that is not known; it is replaced whole under mu.
	list atomic.Pointer[[]*T]
	mu   sync.Mutex
}

// All are the records by id, nil for an id that is not known. Nobody may change the slice.
func (s *Holders[T]) All() []*T {
	if list := s.list.Load(); list != nil {
		return *list
	}
	return nil
}

// Known is the record of h, nil if there is none.
func (s *Holders[T]) Known(h Holder) *T {
	if list := s.All(); int(h) < len(list) {
		return list[h]
	}
	return nil
}

// Of is the record of h: a zero one on first use.
func (s *Holders[T]) Of(h Holder) *T {
	if known := s.Known(h); known != nil {
		return known
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	list := slices.Clone(s.All())
	for int(h) >= len(list) {
		list = append(list, nil)
	}
	if list[h] == nil {
		list[h] = new(T)
		s.list.Store(&list)
	}
	return list[h]
}

// Forget ends the record of h. Its id stays within the length of All.
func (s *Holders[T]) Forget(h Holder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Known(h) == nil {
		return
	}
	list := slices.Clone(s.All())
	list[h] = nil
	s.list.Store(&list)
}
