package late

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"fleetdrill/mockworker/blockhash"
	"fleetdrill/mockworker/engine"
)

const (
	// MaxSteps and MaxBy bound the options: far above what was seen of real engines.
	MaxSteps = 1_000_000
	MaxBy    = time.Hour
	// MaxHeld bounds the removals held; beyond it the oldest leaves early. About 400 bytes each.
	MaxHeld = 1 << 18
	// IdleAfter is when an engine that has stopped stepping gives up what is held for further steps: longer
	// than any step, so that a long prefill is not taken for the end.
	IdleAfter = time.Second
)

// Options say how late removals are. The zero value is not late at all; at most one field may be set.
type Options struct {
	// Steps holds a removal until so many further steps have run.
	Steps int
	// By holds a removal for so long.
	By time.Duration
}

// Validate says what is wrong with o.
func (o Options) Validate() error {
	switch {
	case o.Steps != 0 && o.By != 0:
		return errors.New("removals are late by steps or by time, not both")
	case o.Steps < 0 || o.Steps > MaxSteps:
		return fmt.Errorf("removals late by %d steps: must be from 0 to %d", o.Steps, MaxSteps)
	case o.By < 0 || o.By > MaxBy:
		return fmt.Errorf("removals late by %s: must be from 0 to %s", o.By, MaxBy)
	}
	return nil
}

// Removals is what one engine's event stream holds back. It is not safe for concurrent use. Every now is in
// ns of one clock that does not go back.
type Removals struct {
	o    Options
	step int64 // calls of Filter
	last int64 // when the last one was

	queue []held
	head  int   // of queue: what stands before has left
	base  int64 // number of removals ever held before queue[0], so that places stay when the queue shrinks
	// where is which removals held are a block's.
	where map[blockhash.Digest]places
	taken int64
	out   []engine.Event
}

// places are the numbers of the removals of one block. A second one is rare: a block of which two copies
// are evicted.
type places struct {
	first int64
	more  []int64
}

// held is one removal that came with a step at an instant. One that left early stays in its place, gone.
type held struct {
	event    engine.Event
	step, at int64
	gone     bool
}

// New makes a Removals that holds nothing. It panics on options that are not valid.
func New(o Options) *Removals {
	if err := o.Validate(); err != nil {
		panic("late.New: " + err.Error())
	}
	return &Removals{o: o, where: map[blockhash.Digest]places{}}
}

// Set changes how late removals are from now on, those that are held already included. It panics on options
// that are not valid.
func (r *Removals) Set(o Options) {
	if o == r.o {
		return
	}
	if err := o.Validate(); err != nil {
		panic("late.Set: " + err.Error())
	}
	r.o = o
}

// Filter takes the events of one step, in order and perhaps none, and returns what goes out with it: the
// removals that are due, then the step's other events. It is to be called for every step, or steps are not
// counted. The result is valid until the next call; it aliases events, which may be reused after that.
func (r *Removals) Filter(now int64, events []engine.Event) []engine.Event {
	r.step++
	r.last = now
	if r.o == (Options{}) && len(r.where) == 0 {
		return events
	}
	r.out = r.takeDue(r.out[:0], func(h *held) bool { return r.due(h, now) })
	for i := range events {
		r.pass(&events[i], now)
	}
	return r.out
}

// pass holds a removal, and lets everything else out behind the removals that must not stand behind it.
func (r *Removals) pass(e *engine.Event, now int64) {
	switch e.Kind {
	case engine.Removed:
		if r.o != (Options{}) {
			r.hold(e, now)
			return
		}
	case engine.Stored:
		r.release(e.Hashes)
	case engine.Cleared:
		r.out = r.takeDue(r.out, func(*held) bool { return true })
	}
	r.out = append(r.out, *e)
}

func (r *Removals) hold(e *engine.Event, now int64) {
	if r.Held() >= MaxHeld {
		r.out = append(r.out, r.pop())
	}
	r.taken++
	h := held{event: *e, step: r.step, at: now}
	h.event.Hashes = slices.Clone(e.Hashes) // the engine's memory is another step's soon
	n := r.base + int64(len(r.queue))
	for _, hash := range h.event.Hashes {
		if p, ok := r.where[hash]; ok {
			p.more = append(p.more, n)
			r.where[hash] = p
		} else {
			r.where[hash] = places{first: n}
		}
	}
	r.queue = append(r.queue, h)
}

// release lets the removals of these blocks out, in the order they came.
func (r *Removals) release(hashes []blockhash.Digest) {
	if len(r.where) == 0 {
		return
	}
	var found []int64
	for _, hash := range hashes {
		if p, ok := r.where[hash]; ok {
			found = append(append(found, p.first), p.more...)
		}
	}
	slices.Sort(found)
	for _, n := range slices.Compact(found) {
		r.out = append(r.out, r.forget(int(n-r.base)))
	}
}

// takeDue appends the oldest removals as long as due says so.
func (r *Removals) takeDue(dst []engine.Event, due func(*held) bool) []engine.Event {
	for ; r.head < len(r.queue); r.head++ {
		h := &r.queue[r.head]
		if h.gone {
			continue
		}
		if !due(h) {
			break
		}
		dst = append(dst, r.forget(r.head))
	}
	r.shrink()
	return dst
}

// pop takes the oldest removal that is still here.
func (r *Removals) pop() engine.Event {
	for r.queue[r.head].gone {
		r.head++
	}
	r.head++
	return r.forget(r.head - 1)
}

// forget takes the removal at a place of the queue out, which it returns.
func (r *Removals) forget(i int) engine.Event {
	e := r.queue[i].event
	r.queue[i].event, r.queue[i].gone = engine.Event{}, true
	n := r.base + int64(i)
	for _, hash := range e.Hashes {
		p, ok := r.where[hash]
		switch {
		case !ok: // an event that names a block twice
		case p.first == n && len(p.more) == 0:
			delete(r.where, hash)
		case p.first == n:
			r.where[hash] = places{p.more[0], p.more[1:]}
		default:
			p.more = slices.DeleteFunc(p.more, func(m int64) bool { return m == n })
			r.where[hash] = p
		}
	}
	return e
}

// shrink gives back the part of the queue that has left, once it is the larger one.
func (r *Removals) shrink() {
	if r.head <= len(r.queue)/2 {
		return
	}
	r.base += int64(r.head)
	r.queue, r.head = slices.Delete(r.queue, 0, r.head), 0
}

// due says whether a removal may go out with the present step, or at now if that is not a step's.
func (r *Removals) due(h *held, now int64) bool {
	if r.o.Steps > 0 {
		return r.step-h.step >= int64(r.o.Steps) || now-r.last >= int64(IdleAfter)
	}
	return now-h.at >= int64(r.o.By)
}

// Due returns the removals that are due at now although no step ran, in order and valid until the next
// call: those held long enough, and of those that wait for steps all, once no step has come for IdleAfter.
func (r *Removals) Due(now int64) []engine.Event {
	r.out = r.takeDue(r.out[:0], func(h *held) bool { return r.due(h, now) })
	return r.out
}

// Flush returns everything held, in order and valid until the next call.
func (r *Removals) Flush() []engine.Event {
	r.out = r.takeDue(r.out[:0], func(*held) bool { return true })
	return r.out
}

// Next is when to ask Due if no step comes before, and false when nothing is held.
func (r *Removals) Next() (at int64, ok bool) {
	if r.Held() == 0 {
		return math.MaxInt64, false
	}
	if r.o.Steps > 0 {
		return r.last + int64(IdleAfter), true
	}
	for i := r.head; ; i++ {
		if h := &r.queue[i]; !h.gone {
			return h.at + int64(r.o.By), true
		}
	}
}

// Taken is the number of removals ever held.
func (r *Removals) Taken() int64 { return r.taken }

// Held is the number of distinct blocks of which removals are held.
func (r *Removals) Held() int { return len(r.where) }
