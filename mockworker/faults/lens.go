package faults

import "sync"

// Lens is how one load figure looks to the outside: as it is, or as a stale_load fault shows it. The zero
// value is ready; it is safe for concurrent use.
type Lens[T any] struct {
	mu    sync.Mutex // guards everything below
	fault string     // whose picture kept is
	kept  T
}

// See returns what is to be told in place of real. A frozen figure is the one of the first look since the
// fault was armed. known is false when nothing is to be told.
func (l *Lens[T]) See(s *Set, now int64, real T) (told T, known bool) {
	id, mode := s.StaleLoad(now)
	switch mode {
	case ModeFreeze:
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.fault != id {
			l.fault, l.kept = id, real
		}
		return l.kept, true
	case ModeZero:
		var none T
		return none, true
	case ModeAbsent:
		return told, false
	}
	return real, true
}
