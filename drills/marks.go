package drills

import (
	"sync"

	"fleetdrill/drills/predicate"
	"fleetdrill/drills/record"
)

// marks are the named instants of a run so far. Safe for concurrent use.
type marks struct {
	mu    sync.Mutex // guards all below
	order []record.Mark
	fresh chan struct{} // closed and replaced at each new mark; nil while nobody waits
}

// set adds a mark; the first value of a name stays.
func (m *marks) set(name string, at record.Interval) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, x := range m.order {
		if x.Name == name {
			return
		}
	}
	m.order = append(m.order, record.Mark{Name: name, Interval: at})
	if m.fresh != nil {
		close(m.fresh)
		m.fresh = nil
	}
}

// instant marks an instant read from one clock reading.
func (m *marks) instant(name string, ns int64) { m.set(name, record.Interval{Lo: ns, Hi: ns}) }

// resolve is the interval of a mark expression; false while its mark has not come.
func (m *marks) resolve(e predicate.Mark) (record.Interval, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.find(e)
}

func (m *marks) find(e predicate.Mark) (record.Interval, bool) {
	for _, x := range m.order {
		if x.Name == e.Name {
			return e.From(x.Interval), true
		}
	}
	return record.Interval{}, false
}

// await is resolve for a mark that may come later: while it has not, the channel is closed at the next
// new mark.
func (m *marks) await(e predicate.Mark) (record.Interval, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if at, ok := m.find(e); ok {
		return at, nil
	}
	if m.fresh == nil {
		m.fresh = make(chan struct{})
	}
	return record.Interval{}, m.fresh
}

// list is every mark in the order it came.
func (m *marks) list() []record.Mark {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]record.Mark(nil), m.order...)
}
